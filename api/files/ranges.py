"""The `range` header: which bytes of a file a client wants (RFC 9110, section 14)."""

from __future__ import annotations

import re

_ONE_RANGE = re.compile(
    r"bytes=[ \t]*(?:(?P<first>[0-9]+)-(?P<last>[0-9]*)|-(?P<suffix>[0-9]+))[ \t]*",
    re.IGNORECASE,
)

_MAX_DIGITS = 18


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
        start, end = max(0, size - _number(match["suffix"])), size
    else:
        start, end = _number(match["first"]), size
        if match["last"]:
            if _number(match["last"]) < start:
                return None
            end = min(size, _number(match["last"]) + 1)
    if start >= end:
        raise UnsatisfiableRangeError(header)
    return start, end


def _number(digits: str) -> int:
    """Return a number, or one that is larger than any file: Python does not convert thousands of digits."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS
