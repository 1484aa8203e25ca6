"""Builds a small body of the kind that a route says it reads."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect as kinds

_SIMPLE: tuple[tuple[type[kinds.Type], Any], ...] = (
    (kinds.StrType, "a"),
    (kinds.BoolType, False),
    (kinds.IntType, 1),
    (kinds.FloatType, 1.0),
    (kinds.NoneType, None),
    (kinds.AnyType, "a"),
)
MAX_DEPTH = 5


def sample(kind: Any) -> str | None:
    """Return a body with the required fields of a kind, as JSON; None if there is no such body.

    Args:
        kind: a type that msgspec can decode; None: the route describes no body.
    """
    if kind is None:
        return None
    try:
        body = msgspec.json.encode(_value(kinds.type_info(kind), 0))
        msgspec.json.decode(body, type=kind)
    except (TypeError, ValueError, LookupError, msgspec.MsgspecError):
        return None
    return body.decode()


def _value(kind: kinds.Type, depth: int) -> Any:
    """Return a value of a kind. Raises LookupError for a kind without a known value."""
    if depth > MAX_DEPTH:
        raise LookupError("the kind is nested too deeply")
    for known, value in _SIMPLE:
        if isinstance(kind, known):
            return value
    if isinstance(kind, kinds.UnionType):
        return _value(kind.types[0], depth + 1)
    if isinstance(kind, kinds.LiteralType):
        return kind.values[0]
    if isinstance(kind, kinds.ListType):
        return [_value(kind.item_type, depth + 1)]
    if isinstance(kind, kinds.DictType):
        return {}
    if isinstance(kind, kinds.StructType):
        return {field.encode_name: _value(field.type, depth + 1) for field in kind.fields if field.required}
    raise LookupError(f"no value of {kind} is known")
