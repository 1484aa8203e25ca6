"""Schedules the reports to waiting clients. Independent of the contents of the reports."""

from __future__ import annotations

from collections.abc import Iterable

FIRST_S = 0.1  # minimum time between two rounds of reports, and from a request's admission to its next report
EACH_S = 1.0  # time between two reports to the same request


class Waits:
    """Requests whose clients receive reports of their place in the queue, until the first token.

    All reports that are due are sent together, so that one pass over the queue finds every place.
    """

    def __init__(self) -> None:
        self._when: dict[str, float] = {}
        self._not_before = 0.0

    def __bool__(self) -> bool:
        """Return whether any request receives reports."""
        return bool(self._when)

    @property
    def next(self) -> float | None:
        """Time of the next report; None: none is pending."""
        return max(self._not_before, min(self._when.values())) if self._when else None

    def add(self, request_id: str, now: float) -> None:
        """Start to report a request's place in the queue to its client.

        The first report follows the next step, unless that step yields a token.
        """
        self._when[request_id] = now

    def put_off(self, request_id: str, now: float) -> None:
        """Delay the next report to a request that was admitted, because its first token may come at any
        moment."""
        if request_id in self._when:
            self._when[request_id] = max(self._when[request_id], now + FIRST_S)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Stop reporting the place in the queue to these requests."""
        for request_id in request_ids:
            self._when.pop(request_id, None)

    def take_due(self, now: float) -> list[str]:
        """Return the requests to which a report is due now, and schedule the next report to each in
        EACH_S."""
        if not self._when or now < self._not_before:
            return []
        due = [request_id for request_id, when in self._when.items() if when <= now]
        if due:
            self._not_before = now + FIRST_S
            self._when.update(dict.fromkeys(due, now + EACH_S))
        return due
