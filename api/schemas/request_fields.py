"""Bodies with the request fields of plugins (see `core.interfaces.request_field`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional, TypeVar

import msgspec

BodyT = TypeVar("BodyT", bound=msgspec.Struct)


@dataclass(frozen=True, eq=False)
class ActiveField:
    """A request field of a plugin that the server reads.

    Attributes:
        name: name of the field.
        value_type: type of the value, for msgspec.
        default: value if the client sends none, as plain data; None: there is none.
        routes: routes whose bodies have the field.
        checked: function that returns a value of `value_type` as plain data, or raises RequestError or
            ComponentFailedError.
    """

    name: str
    value_type: Any
    default: Any
    routes: frozenset[str]
    checked: Callable[[Any], Any]


@functools.lru_cache(maxsize=64)
def with_fields(kind: type[BodyT], fields: tuple[ActiveField, ...]) -> type[BodyT]:
    """Return a subclass of a body's class with these fields added. Its attribute `request_fields` lists them.

    If there are no fields, return the class itself.
    """
    if not fields:
        return kind
    made: Any = msgspec.defstruct(
        kind.__name__,
        [(field.name, Optional[field.value_type], None) for field in fields],  # noqa: UP045
        bases=(kind,),
        namespace={"request_fields": fields, "__doc__": kind.__doc__},
        module=kind.__module__,
        kw_only=True,
    )
    found: type[BodyT] = made
    return found


def like(kind: type[BodyT], body: msgspec.Struct) -> type[BodyT]:
    """Return a body's class with the request fields of another body."""
    return with_fields(kind, fields_in(body))


def given_fields(body: msgspec.Struct) -> dict[str, Any]:
    """Return the values of request fields that a client sent: name → value of the field's type."""
    found = {field.name: getattr(body, field.name) for field in fields_in(body)}
    return {name: value for name, value in found.items() if value is not None}


def fields_in(body: msgspec.Struct) -> tuple[ActiveField, ...]:
    """Return the request fields of a body's class."""
    found: tuple[ActiveField, ...] = getattr(type(body), "request_fields", ())
    return found
