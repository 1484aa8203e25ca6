"""Guards jinja2's filters and tests: checks each call before it runs, and counts its cost.

A filter for which no check is defined here, such as one that a later jinja2 adds, accepts only small values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from types import GeneratorType
from typing import Any

from jinja2.utils import _PassArg

from .formats import allow_percent
from .meter import SMALL, LimitError, Meter
from .methods import allow_joined, allow_replaced, allow_set

Function = Callable[..., Any]
Check = Callable[..., None]

MAX_NUMBER, MAX_TEXT, MAX_WEIGHT = 1000, 1000, 65_536
"""Limits on the value and the arguments of filters that have no check of their own."""

MAX_BATCH = 10_000
MAX_JSON_INDENT = 64
_TEXT_OF_SCALAR = 32
_SIZED = (str, list, tuple, dict, range)
_NO_ITERATORS = frozenset({str, list, dict, int, float, bool, type(None)})
_FREE_FILTERS = frozenset({"abs", "count", "d", "default", "first", "last", "length"})
"""Filters that take constant time for any value, and are not counted."""

_FREE_TESTS = frozenset(
    [
        "boolean",
        "callable",
        "defined",
        "escaped",
        "even",
        "false",
        "filter",
        "float",
        "integer",
        "iterable",
        "mapping",
        "none",
        "number",
        "odd",
        "sameas",
        "sequence",
        "string",
        "test",
        "true",
        "undefined",
    ]
)
"""Tests of only a value's type or identity, which take constant time and are not counted."""


def guard_filters(filters: Mapping[str, Function], meter: Meter) -> dict[str, Function]:
    """Return the filters, wrapped so that they are checked and counted by a meter."""
    guarded = {
        name: function if name in _FREE_FILTERS else _guarded(function, CHECKS.get(name, _small), meter)
        for name, function in filters.items()
    }
    return {**guarded, "trim": _trim_of(filters["trim"], meter)}


def guard_tests(tests: Mapping[str, Function], meter: Meter) -> dict[str, Function]:
    """Return the tests, wrapped so that they are counted by a meter."""
    return {
        name: function if name in _FREE_TESTS else _guarded(function, _compared, meter)
        for name, function in tests.items()
    }


def _guarded(function: Function, check: Check, meter: Meter) -> Function:
    first = 0 if _PassArg.from_obj(function) is None else 1  # the environment or context

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        meter.tick()
        if args[first].__class__ not in _NO_ITERATORS and isinstance(args[first], Iterator):
            args = (*args[:first], list(args[first]), *args[first + 1 :])  # a list has a length to check
        check(meter, *args[first:], **kwargs)
        found = function(*args, **kwargs)
        return meter.watch(found) if found.__class__ is GeneratorType else meter.made(found)

    return guarded


def _trim_of(trim: Function, meter: Meter) -> Function:
    """Return a faster guarded version of the filter `trim`, which templates call most often."""

    def trimmed(value: Any, chars: Any = None) -> Any:
        if value.__class__ is not str or chars is not None:
            meter.made(value)
            allow_set(chars, "the filter 'trim'")
        elif len(value) > SMALL:
            meter.tick(1 + (len(value) >> 8))
        return trim(value, chars)

    return trimmed


def _small(meter: Meter, value: Any, *args: Any, **kwargs: Any) -> None:
    for each in (value, *args, *kwargs.values()):
        if isinstance(each, int) and abs(each) > MAX_NUMBER and each is not value:
            raise LimitError(f"gives a filter the number {each:.3g}; the limit is {MAX_NUMBER}")
        if isinstance(each, str) and len(each) > MAX_TEXT and each is not value:
            raise LimitError(f"gives a filter an argument of {len(each)} characters; the limit is {MAX_TEXT}")
        if meter.touch(each) > MAX_WEIGHT:
            raise LimitError(f"gives a filter a value that weighs more than {MAX_WEIGHT}")


def _linear(meter: Meter, value: Any, *args: Any, **kwargs: Any) -> None:
    """Check a filter whose time and result depend only on the value, not on the arguments."""
    meter.seen(value)


def _compared(meter: Meter, *values: Any) -> None:
    for value in values:
        meter.seen(value)


def _named(meter: Meter, value: Any, *args: Any, **kwargs: Any) -> None:
    """Check a filter that reads an attribute, such as "a.b", of each item.

    Counts the items, and limits the length of the attribute's name.
    """
    meter.tick(len(value) if isinstance(value, _SIZED) else 1)
    for each in (*args[:1], *(kwargs[key] for key in ("attribute", "by") if key in kwargs)):
        allow_set(each, "a filter an attribute of")
    for each in args[1:]:
        meter.seen(each)


def _center(meter: Meter, value: Any, width: Any = 80) -> None:
    meter.allow_text(max(meter.touch(value), width if isinstance(width, int) else 0))


def _indent(meter: Meter, s: Any, width: Any = 4, first: Any = False, blank: Any = False) -> None:
    size = len(width) if isinstance(width, str) else width
    if isinstance(s, str) and isinstance(size, int):
        meter.allow_text(len(s) + (len(s.splitlines()) + 2) * (size + 1))


def _join(meter: Meter, value: Any, d: Any = "", attribute: Any = None) -> None:
    allow_set(attribute, "a filter an attribute of")
    allow_joined(meter, d if isinstance(d, str) else meter.text_of(d), value, _TEXT_OF_SCALAR)


def _replace(meter: Meter, s: Any, old: Any, new: Any, count: Any = None) -> None:
    text, found, by = (each if isinstance(each, str) else meter.text_of(each) for each in (s, old, new))
    allow_replaced(meter, text, found, by, count)


def _format(meter: Meter, value: Any, *args: Any, **kwargs: Any) -> None:
    allow_percent(meter, value if isinstance(value, str) else meter.text_of(value), kwargs or args)


def _number_of(most: int, name: str) -> Check:
    """Return a check for a filter whose first argument, `name`, is a number that must not exceed `most`."""

    def check(meter: Meter, value: Any, *args: Any, **kwargs: Any) -> None:
        meter.seen(value)
        for each in (*args[:1], *(kwargs[key] for key in (name,) if key in kwargs)):
            if isinstance(each, int) and abs(each) > most:
                raise LimitError(f"gives a filter a {name} of {each:.3g}; the limit is {most}")

    return check


def _sum(meter: Meter, iterable: Any, attribute: Any = None, start: Any = 0) -> None:
    allow_set(attribute, "a filter an attribute of")
    _named(meter, iterable)
    if not isinstance(start, int | float):
        raise LimitError(f"sums up from a {type(start).__name__}; only numbers can be summed up")


def _written(meter: Meter, value: Any, *args: Any, **kwargs: Any) -> None:
    meter.touch(value)


def _tojson(
    meter: Meter,
    x: Any,
    ensure_ascii: Any = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: Any = False,
) -> None:
    if indent is separators is None and meter.is_trusted(x):
        return
    weight, depth = meter.weigh(x) if isinstance(x, dict | list | tuple) else (meter.touch(x), 1)
    for each in (indent, *(separators if isinstance(separators, list | tuple) else ())):
        size = len(each) if isinstance(each, str) else each
        if isinstance(size, int) and size > MAX_JSON_INDENT:
            raise LimitError(f"writes JSON with an indent of {size:.3g}; the limit is {MAX_JSON_INDENT}")
    if indent is not None:
        width = len(indent) if isinstance(indent, str) else int(indent)
        meter.allow_text(weight + weight // 8 * depth * max(width, 0))


CHECKS: dict[str, Check] = {
    **dict.fromkeys(
        [
            "capitalize",
            "float",
            "int",
            "items",
            "list",
            "lower",
            "random",
            "reverse",
            "safe",
            "title",
            "upper",
            "wordcount",
        ],
        _linear,
    ),
    **dict.fromkeys(
        [
            "attr",
            "dictsort",
            "groupby",
            "max",
            "min",
            "map",
            "reject",
            "rejectattr",
            "select",
            "selectattr",
            "sort",
            "unique",
        ],
        _named,
    ),
    **dict.fromkeys(["e", "escape", "forceescape", "string", "urlencode"], _written),
    "batch": _number_of(MAX_BATCH, "linecount"),
    "slice": _number_of(MAX_BATCH, "slices"),
    "round": _number_of(MAX_NUMBER, "precision"),
    "center": _center,
    "format": _format,
    "indent": _indent,
    "join": _join,
    "replace": _replace,
    "sum": _sum,
    "tojson": _tojson,
}
