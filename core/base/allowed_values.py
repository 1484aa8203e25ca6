"""Describes in words the values that a type annotation allows, and the faults of other values.

msgspec defines the bounds and types, and checks the values. This module puts the results into words, so that
a flag, a variable, a key of a file, an argument of `LLM` and an option of a component get the same message.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import inspect as types


def fault_of(value: object, annotation: Any) -> str:
    """Return the fault of a value, such as "0; it must be a whole number, 1 or more"; "" if it is allowed."""
    try:
        msgspec.convert(value, annotation)
        is_allowed = not isinstance(value, float) or math.isfinite(value)
    except msgspec.ValidationError:
        is_allowed = False
    return "" if is_allowed else f"{value!r:.60}; it must be {allowed_by(annotation)}"


def allowed_by(annotation: Any) -> str:
    """Return the allowed values as text that completes "it must be …", such as "one of on, off"."""
    if choices := choices_of(annotation):
        return f"one of {', '.join(map(str, choices))}"
    info = kind_of(annotation)
    words = in_words(info)
    if words.startswith(("text", "true")):
        return words
    return f"a finite {words}" if isinstance(info, types.FloatType) else f"a {words}"


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """Return the values of the Literal in an annotation, in the order of the code; () if there is none."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next(filter(None, map(choices_of, get_args(annotation))), ())


@cache
def kind_of(annotation: Any) -> Any:
    """Return msgspec's description of an annotation; of `X | None`, that of X."""
    info: Any = types.type_info(annotation)
    rest = [each for each in getattr(info, "types", ()) if not isinstance(each, types.NoneType)]
    return rest[0] if len(rest) == 1 else info


def in_words(info: Any) -> str:
    """Return the values that a type of `msgspec.inspect` allows, such as "whole number, 0 to 65535"."""
    match info:
        case types.Metadata():
            return str((info.extra_json_schema or {}).get("title") or in_words(info.type))
        case types.LiteralType():
            return " | ".join(map(as_text, info.values))
        case types.UnionType():
            return " | ".join(map(in_words, info.types))
        case types.NoneType():
            return "none"
        case types.BoolType():
            return "true | false"
        case types.IntType():
            return ", ".join(["whole number", *_bounds(info)])
        case types.FloatType():
            return ", ".join(["number", *_bounds(info)])
        case types.StrType():
            return ", ".join(["text", *_text_bounds(info)])
        case types.ListType() | types.VarTupleType() | types.SetType():
            return f"list of: {in_words(info.item_type)}"
        case _:
            return str(getattr(info, "cls", type(info)).__name__).removesuffix("Type").lower()


def as_text(value: Any) -> str:
    """Return a value as users write it: text unchanged, other values as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _bounds(info: Any) -> Iterator[str]:
    if info.ge is not None and info.le is not None:
        yield f"{info.ge} to {info.le}"
    else:
        words = {"ge": "{} or more", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}
        bounds = ((phrase, getattr(info, name)) for name, phrase in words.items())
        yield from (phrase.format(bound) for phrase, bound in bounds if bound is not None)
    if info.multiple_of is not None:
        yield f"a multiple of {info.multiple_of}"


def _text_bounds(info: Any) -> Iterator[str]:
    if info.min_length is not None:
        yield f"{info.min_length} characters or more"
    if info.max_length is not None:
        yield f"at most {info.max_length} characters"
    if info.pattern is not None:
        yield f"of the form {info.pattern}"
