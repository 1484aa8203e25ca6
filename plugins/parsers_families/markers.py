"""Computes how much of a text's end may still become a marker."""

from __future__ import annotations


def certain_length(text: str, *markers: str) -> int:
    """Return the length of the text that certainly does not belong to an incomplete marker.

    White space before the marker counts as part of it: parsers drop it there, and keep it elsewhere.
    No marker is in the text.
    """
    return len(text[: len(text) - partial_length(text, *markers)].rstrip())


def partial_length(text: str, *markers: str) -> int:
    """Return the length of the longest suffix of the text that may be the start of a marker."""
    longest = max(map(len, markers), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        end = text[-length:]
        if any(marker.startswith(end) for marker in markers):
            return length
    return 0
