"""Parses the `range` header: which bytes of a file a client wants (RFC 9110, section 14)."""

from __future__ import annotations

import re

_ONE_RANGE = re.compile(
    r"bytes=[ \t]*(?:(?P<first>[0-9]+)-(?P<last>[0-9]*)|-(?P<suffix>[0-9]+))[ \t]*",
    re.IGNORECASE,
)

_MAX_DIGITS = 18


class UnsatisfiableRangeError(ValueError):
    """The file has no byte in the requested range."""


def read_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the start and end (exclusive) of the requested bytes; None if the whole file must be sent.

    A header that is not a single range of bytes is ignored, as RFC 9110 allows.

    Args:
        header: value of the header; None if there is none.
        size: size of the file in bytes.

    Raises:
        UnsatisfiableRangeError: the file has no byte in the range.
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
    """Return the number, capped above any file size: Python refuses to convert thousands of digits."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS
