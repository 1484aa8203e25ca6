"""Schedules reports to waiting clients. Knows times and ids, not the reports."""

from __future__ import annotations

from collections.abc import Iterable

FIRST_S = 0.1  # least time between two rounds of reports, and from a request's admission to its next report
EACH_S = 1.0


class Waits:
    """Requests whose clients get reports on their wait until the first token.

    All due reports are sent at once: one pass over the queue gives all places.
    """

    def __init__(self) -> None:
        self._when: dict[str, float] = {}
        self._not_before = 0.0

    def __bool__(self) -> bool:
        """Return whether any request gets reports."""
        return bool(self._when)

    @property
    def next(self) -> float | None:
        """Time of the next report; None: none is pending."""
        return max(self._not_before, min(self._when.values())) if self._when else None

    def add(self, request_id: str, now: float) -> None:
        """Start reports to a request, the first one after its first step unless that step brings a token."""
        self._when[request_id] = now

    def put_off(self, request_id: str, now: float) -> None:
        """Delay a request's next report: it was admitted, so its first token may come at any moment."""
        if request_id in self._when:
            self._when[request_id] = max(self._when[request_id], now + FIRST_S)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Stop sending reports on their wait to these requests."""
        for request_id in request_ids:
            self._when.pop(request_id, None)

    def take_due(self, now: float) -> list[str]:
        """Return the requests whose report is due now, and schedule their next one in EACH_S."""
        if not self._when or now < self._not_before:
            return []
        due = [request_id for request_id, when in self._when.items() if when <= now]
        if due:
            self._not_before = now + FIRST_S
            self._when.update(dict.fromkeys(due, now + EACH_S))
        return due
