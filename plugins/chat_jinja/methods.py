"""The methods of Python's built-in types that a template may call, and the check before each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2.exceptions import SecurityError

from .meter import LimitError, Meter

Check = Callable[..., None]
"""A function of meter, value and arguments that raises LimitError if the call would cost too much."""

MAX_SET = 1000
"""Maximum number of characters in the set that `strip` removes. `strip` compares all at each position."""


def allow_method(meter: Meter, method: Any, *args: Any, **kwargs: Any) -> None:
    """Check a method call before it runs.

    Raises:
        LimitError: the call would cost too much.
        SecurityError: templates must not call this method.
    """
    value, name = method.__self__, method.__name__
    key = (value.__class__, name)
    if key not in METHODS:
        key = (next((kind for kind in FREE if isinstance(value, kind)), None), name)
        if key not in METHODS:
            raise SecurityError(f"it calls {type(value).__name__}.{name}, which templates may not call")
    meter.seen(value)
    check = METHODS[key]
    if check is not None:
        check(meter, value, *args, **kwargs)
    for each in args:
        meter.seen(each)


def allow_set(value: Any, what: str) -> None:
    """Raise LimitError if a text that is compared at every position of another text is too long.

    Args:
        value: the text; values of other types are accepted.
        what: function that receives the text, for the message.
    """
    if isinstance(value, str | bytes) and len(value) > MAX_SET:
        raise LimitError(f"gives {what} {len(value)} characters; the limit is {MAX_SET}")


def allow_replaced(meter: Meter, text: Any, old: Any = "", new: Any = "", count: Any = -1) -> None:
    """Raise LimitError if the result of `text.replace(old, new, count)` would be too long."""
    if all(isinstance(each, str) for each in (text, old, new)):
        num = text.count(old)
        if isinstance(count, int) and count >= 0:
            num = min(num, count)
        meter.allow_text(len(text) + num * len(new))


def allow_joined(meter: Meter, separator: str, values: Any, spare: int = 0) -> None:
    """Raise LimitError if the joined texts would be too long.

    Estimates the length from the weight of `values` (see `ITEM_WEIGHT`).

    Args:
        separator: text between two values.
        values: values to join; checked only if they are text, a list, a tuple, a dict or a range.
        spare: number of characters to add per value, because its text may be longer than its weight.
    """
    if isinstance(values, str | list | tuple | dict | range):
        meter.allow_text(meter.touch(values) + len(values) * (len(separator) + spare))


def allow_padded(meter: Meter, text: str, width: Any = 0, *_: Any) -> None:
    """Raise LimitError if a text would be padded to too large a width."""
    if isinstance(width, int):
        meter.allow_text(max(len(text), width))


def _strip(meter: Meter, text: str, characters: Any = None) -> None:
    allow_set(characters, "strip()")


def _join(meter: Meter, separator: str, values: Any) -> None:
    if not isinstance(values, str | list | tuple | dict):
        raise LimitError("joins what is not a list; put it into a list by the filter `list` first")
    allow_joined(meter, separator, values)


def _expandtabs(meter: Meter, text: str, tabsize: Any = 8) -> None:
    if isinstance(tabsize, int):
        meter.allow_text(len(text) + text.count("\t") * max(tabsize, 0))


FREE = {
    str: "capitalize casefold count encode endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier "
    "islower isnumeric isprintable isspace istitle isupper lower partition removeprefix removesuffix rfind rindex "
    "rpartition rsplit split splitlines startswith swapcase title upper",
    bytes: "decode hex",
    list: "copy count index",
    tuple: "count index",
    dict: "copy get items keys values",
    int: "bit_count bit_length conjugate is_integer",
    float: "conjugate hex is_integer",
    range: "count index",
}

METHODS: dict[tuple[type | None, str], Check | None] = {
    (kind, name): None for kind, names in FREE.items() for name in names.split()
} | {
    (str, "strip"): _strip,
    (str, "lstrip"): _strip,
    (str, "rstrip"): _strip,
    (str, "replace"): allow_replaced,
    (str, "join"): _join,
    (str, "center"): allow_padded,
    (str, "ljust"): allow_padded,
    (str, "rjust"): allow_padded,
    (str, "zfill"): allow_padded,
    (str, "expandtabs"): _expandtabs,
}
