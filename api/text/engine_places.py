"""Limits how many choices of one client request are in the engine at once.

One body may ask for thousands of choices. If the engine got all of them at once, the next client's single choice would
wait behind them. Knows neither requests nor the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

KEPT_FREE = 4
"""Requests with several choices leave a quarter of the engine's places free."""


class EnginePlaces:
    """Divides the engine's places evenly among the client requests that have several choices.

    Args:
        num_places: sequences that the engine runs at once.
    """

    def __init__(self, num_places: int) -> None:
        self._num_shared = num_places - num_places // KEPT_FREE
        self._num_requests = 0

    @property
    def share(self) -> int:
        """Most choices that each of the requests may have in the engine now, at least one."""
        return max(1, self._num_shared // max(1, self._num_requests))

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Let a request share the places for the length of the block."""
        self._num_requests += 1
        try:
            yield
        finally:
            self._num_requests -= 1
