"""Ends a text before the first stop string, even if the stop string arrives in several pieces."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class StopStrings:
    """Searches one text for stop strings as it arrives.

    Holds back only text that may still become a stop string. The stop string that is complete first ends the
    text. If two are complete at the same character, the longer one ends it.

    Args:
        stops: stop strings; none is empty.
        keep: whether the stop string is part of the text.
    """

    def __init__(self, stops: Sequence[str], *, keep: bool = False) -> None:
        self._keep = keep
        self._stops = sorted(set(stops))
        self._longest = max(map(len, stops))
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """Add text; return the text that can be sent on, and the stop string that ended the text, if any."""
        text = self._held + text
        found = [(start + len(stop), start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if found:
            _, start, stop = min(found)
            self._held = ""
            return text[: start + self._keep * len(stop)], stop
        held = self._beginning_at_end(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], None

    def finish(self) -> str:
        """Return the held-back text, which did not become a stop string."""
        return self._held

    def _beginning_at_end(self, text: str) -> int:
        """Return the length of the longest suffix of the text that is a prefix of a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[-length:]
            at = bisect_left(self._stops, end)  # in sorted order, the strings with this prefix come next
            if at < len(self._stops) and self._stops[at].startswith(end):
                return length
        return 0
