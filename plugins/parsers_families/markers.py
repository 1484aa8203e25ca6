"""Computes how much of the end of a text may be the start of a marker."""

from __future__ import annotations


def certain_length(text: str, *markers: str) -> int:
    """Return the length of the text without an incomplete marker at its end.

    The text must contain no whole marker. White space at the end counts as part of the marker, because
    parsers drop it there and keep it elsewhere.
    """
    return len(text[: len(text) - partial_length(text, *markers)].rstrip())


def partial_length(text: str, *markers: str) -> int:
    """Return the length of the text's longest suffix that is an incomplete marker; 0 if there is none."""
    longest = max(map(len, markers), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        end = text[-length:]
        if any(marker.startswith(end) for marker in markers):
            return length
    return 0
