"""When waiting clients are told of their waiting. Knows times and ids; what they are told is for others to say."""

from __future__ import annotations

from collections.abc import Iterable

FIRST_S = 0.1  # nobody is told in less, unless nobody was for so long
EACH_S = 1.0


class Waits:
    """The requests that are to be told until their first token has come.

    All that are due are told at once: their places in the queue come of one look at it.
    """

    def __init__(self) -> None:
        self._when: dict[str, float] = {}
        self._not_before = 0.0

    def __bool__(self) -> bool:
        """Return whether anybody is to be told."""
        return bool(self._when)

    @property
    def next(self) -> float | None:
        """When somebody is to be told; None: nobody is."""
        return max(self._not_before, min(self._when.values())) if self._when else None

    def add(self, request_id: str, now: float) -> None:
        """Have a request told, unless its first token comes in its first step."""
        self._when[request_id] = now

    def put_off(self, request_id: str, now: float) -> None:
        """Tell a request later: it was admitted, and its token may come at any moment."""
        if request_id in self._when:
            self._when[request_id] = max(self._when[request_id], now + FIRST_S)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Tell requests no more."""
        for request_id in request_ids:
            self._when.pop(request_id, None)

    def take_due(self, now: float) -> list[str]:
        """Return the requests that are to be told now, to be told again in a second."""
        if not self._when or now < self._not_before:
            return []
        due = [request_id for request_id, when in self._when.items() if when <= now]
        if due:
            self._not_before = now + FIRST_S
            self._when.update(dict.fromkeys(due, now + EACH_S))
        return due
