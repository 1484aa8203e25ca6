"""Tracks the requests' own timeouts. Knows times and ids."""

from __future__ import annotations

import heapq

from llmfw.core.base.errors import DeadlineError


class Deadlines:
    """Requests with a timeout. A step without a due timeout takes constant time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._open: dict[str, tuple[float, float]] = {}  # request → when, and its timeout

    @property
    def next(self) -> float | None:
        """Time of the next check; None: none is needed."""
        return self._heap[0][0] if self._heap else None

    def add(self, request_id: str, timeout_s: float, now: float) -> None:
        """Start the timeout of a request: `timeout_s` seconds from `now`."""
        when = now + timeout_s
        self._open[request_id] = when, timeout_s
        heapq.heappush(self._heap, (when, request_id))

    def forget(self, request_id: str) -> None:
        """Forget a request, which has ended. The heap drops such entries once they are more than half of it."""
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
    """Return the error that ends a late request.

    Args:
        how_far: its progress, which ends the message.
    """
    return DeadlineError(f"the request's timeout of {timeout_s:.3g} s has passed {how_far}")
