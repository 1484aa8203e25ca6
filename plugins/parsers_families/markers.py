"""How much of a text's end may still become a marker."""

from __future__ import annotations


def certain_length(text: str, marker: str) -> int:
    """Return the length of what is certain not to belong to a marker that is not complete yet.

    White space before the marker counts as part of it: parsers drop it there, and keep it elsewhere.
    The marker itself is not in the text.
    """
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:length]):
            text = text[:-length]
            break
    return len(text.rstrip())
