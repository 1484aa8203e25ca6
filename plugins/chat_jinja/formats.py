"""Limits the length of texts formatted by templates: `%` and `str.format` allow any field width."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .meter import LimitError, Meter

MAX_WIDTH = 9999
"""Largest width of a field."""

_FIELD = re.compile(r"[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?")
_DIGITS = re.compile(r"\d+")


def allow_spec(spec: str) -> None:
    """Raise LimitError if a field of `str.format` is too wide."""
    for digits in _DIGITS.findall(spec):
        allow_width(digits)


def allow_width(digits: str) -> int:
    """Return a field's width; raise LimitError if the width is too large, or `*` (taken from an argument)."""
    if digits == "*" or len(digits) > 4:
        shown = digits if len(digits) <= 20 else f"{digits[:20]}…"
        raise LimitError(f"formats a field of width {shown}; the limit is {MAX_WIDTH}")
    return int(digits or 0)


def allow_percent(meter: Meter, form: str | bytes, values: Any) -> None:
    """Raise LimitError if `form % values` would be too long."""
    text = form if isinstance(form, str) else form.decode("latin-1")
    meter.tick(1 + (len(text) >> 4))
    num_fields, width, at = 0, 0, text.find("%")
    while 0 <= at < len(text) - 1:
        at = _after_key(text, at + 1)
        found = _FIELD.match(text, at)
        assert found is not None  # the pattern also matches the empty text
        width += allow_width(found[1]) + allow_width(found[2] or "")
        num_fields += 1
        at = text.find("%", found.end() + 1)
    largest = max(map(meter.touch, _arguments(values)), default=0) if num_fields else 0
    meter.allow_text(len(text) + width + num_fields * largest)


def _after_key(text: str, at: int) -> int:
    """Return the index after a field's `(key)`, if it has one. The key may contain paired parentheses."""
    if not text.startswith("(", at):
        return at
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if not depth:
            return i + 1
    return len(text)


def _arguments(values: Any) -> list[Any]:
    if isinstance(values, tuple):
        return list(values)
    return [values, *values.values()] if isinstance(values, Mapping) else [values]
