"""Tracks the timeouts that requests set themselves."""

from __future__ import annotations

import heapq

from llmfw.core.base.errors import DeadlineError


class Deadlines:
    """Open requests that have a timeout, ordered by the time at which it passes.

    Checks take constant time if no timeout has passed.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._open: dict[str, tuple[float, float]] = {}  # request id → end, timeout in s

    @property
    def next(self) -> float | None:
        """Time at which `take_due` should be called next; None: there are no timeouts."""
        return self._heap[0][0] if self._heap else None

    def add(self, request_id: str, timeout_s: float, now: float) -> None:
        """Start the timeout of a request: `timeout_s` seconds from `now`."""
        when = now + timeout_s
        self._open[request_id] = when, timeout_s
        heapq.heappush(self._heap, (when, request_id))

    def forget(self, request_id: str) -> None:
        """Forget a request that has ended.

        The heap is rebuilt once most of its entries are of ended requests.
        """
        if self._open.pop(request_id, None) and len(self._heap) > 2 * len(self._open) + 64:
            self._heap = [(when, each) for each, (when, _) in self._open.items()]
            heapq.heapify(self._heap)

    def take_due(self, now: float) -> dict[str, float]:
        """Remove and return the requests whose timeout has passed, each with its timeout in seconds."""
        due: dict[str, float] = {}
        while self._heap and self._heap[0][0] <= now:
            when, request_id = heapq.heappop(self._heap)
            if self._open.get(request_id, (None, 0.0))[0] == when:
                due[request_id] = self._open.pop(request_id)[1]
        return due


def deadline_error(timeout_s: float, how_far: str) -> DeadlineError:
    """Return the error that ends a request whose timeout has passed.

    Args:
        how_far: progress of the request, as text for the end of the message.
    """
    return DeadlineError(f"the request's timeout of {timeout_s:.3g} s has passed {how_far}")
