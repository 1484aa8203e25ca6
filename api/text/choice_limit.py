"""Limits how many choices of one client request are in the engine at once.

One request may ask for thousands of choices. If the engine got all of them at once, the next client's single
choice would wait behind them. This module only counts: it sends nothing to the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

KEPT_FREE = 4
"""Requests with several choices leave 1/KEPT_FREE of the running sequences to other requests."""


class ChoiceLimit:
    """Divides the sequences that the engine runs at once among client requests with several choices.

    Args:
        max_running: number of sequences that the engine runs at once.
    """

    def __init__(self, max_running: int) -> None:
        self._num_shared = max_running - max_running // KEPT_FREE
        self._num_requests = 0

    @property
    def share(self) -> int:
        """Number of choices that each joined request may have in the engine now; at least 1."""
        return max(1, self._num_shared // max(1, self._num_requests))

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Let a request share the sequences for the duration of the `with` block."""
        self._num_requests += 1
        try:
            yield
        finally:
            self._num_requests -= 1
