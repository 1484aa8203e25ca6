"""The `range` header: which bytes of a file a client wants (RFC 9110, section 14)."""

from __future__ import annotations

import re

_ONE_RANGE = re.compile(
    r"bytes=[ \t]*(?:(?P<first>[0-9]{1,18})-(?P<last>[0-9]{0,18})|-(?P<suffix>[0-9]{1,18}))[ \t]*",
    re.IGNORECASE,
)


class UnsatisfiableRangeError(ValueError):
    """The file has no byte of the range."""


def read_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return start and end (exclusive) of the bytes that are asked for; None: all, as of one piece.

    What is not one range of bytes is as if there were no header: the whole file is a right answer to it.

    Args:
        header: its value, if there is one.
        size: of the file in bytes.

    Raises:
        UnsatisfiableRangeError: there are no such bytes.
    """
    match = _ONE_RANGE.fullmatch(header or "")
    if match is None:
        return None
    if match["suffix"] is not None:
        start, end = max(0, size - int(match["suffix"])), size
    else:
        start, end = int(match["first"]), size
        if match["last"]:
            if int(match["last"]) < start:
                return None
            end = min(size, int(match["last"]) + 1)
    if start >= end:
        raise UnsatisfiableRangeError(header)
    return start, end
