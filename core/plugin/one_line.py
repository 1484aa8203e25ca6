"""Shows text from a plugin, such as an exception's message, on one line of a terminal."""

from __future__ import annotations

MAX_LENGTH = 600
"""Maximum number of characters of a text that is not cut."""


def one_line(text: str) -> str:
    """Return a text on one line. Escapes control characters, and cuts the middle out of a long text.

    A terminal would obey control characters. The end is kept, because it often holds the cause.
    """
    line = " ".join(text.split())
    if not line.isprintable():
        line = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)
    if len(line) <= MAX_LENGTH:
        return line
    kept = MAX_LENGTH // 2
    return f"{line[:kept]} … ({len(line) - 2 * kept} characters left out) … {line[-kept:]}"
