"""The active request fields of plugins, and their values in a body (see `core.interfaces.request_field`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from llmfw.api.schemas.request_fields import ActiveField, fields_in, with_fields
from llmfw.core.base.errors import RequestError
from llmfw.core.interfaces.request_field import MAX_FIELDS_BYTES

BodyT = TypeVar("BodyT", bound=msgspec.Struct)


class _Fields(msgspec.Struct, kw_only=True):
    """A body that has request fields only."""


class RequestFields:
    """The active request fields of a server.

    Args:
        fields: the fields; their names differ.
    """

    def __init__(self, fields: Sequence[ActiveField] = ()) -> None:
        self._fields = tuple(fields)

    def body_type(self, kind: type[BodyT], route: str) -> type[BodyT]:
        """Return the class of a route's bodies: `kind`, or a subclass with the fields of the route."""
        return with_fields(kind, tuple(field for field in self._fields if route in field.routes))

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the fields of a request that has no body, as plain data (see `field_values`).

        Args:
            given: field's name → value; None stands for the default.

        Raises:
            RequestError: a field is not active; or as in `field_values`.
            ComponentFailedError: a field's plugin failed.
        """
        types = {field.name: field.value_type for field in self._fields}
        found = {}
        for name, value in given.items():
            if name not in types:
                raise RequestError(f"there is no active request field {name!r}; {self._choice()}", param=name)
            if value is not None:
                found[name] = _converted(name, value, types[name])
        return field_values(with_fields(_Fields, self._fields)(**found))

    def _choice(self) -> str:
        active = ", ".join(field.name for field in self._fields)
        return f"active: {active}" if active else "name it in LLM's request_fields"


NO_FIELDS = RequestFields()


def field_values(body: msgspec.Struct) -> dict[str, Any]:
    """Return the values of a body's request fields as plain data.

    Raises:
        RequestError: a value is wrong, or the values are too large; names the field.
        ComponentFailedError: a field's plugin failed.
    """
    fields = fields_in(body)
    found = {}
    for field in fields:
        value = getattr(body, field.name)
        if value is not None:
            found[field.name] = field.checked(value)
        elif field.default is not None:
            found[field.name] = field.default
    if found:
        _check_size(found)
    return found


def _converted(name: str, value: Any, value_type: Any) -> Any:
    try:
        return msgspec.convert(value, value_type)
    except msgspec.ValidationError as error:
        raise RequestError(f"{name}: {error}", param=name) from error


def _check_size(values: dict[str, Any]) -> None:
    sizes = {name: len(msgspec.msgpack.encode(value)) for name, value in values.items()}
    if sum(sizes.values()) > MAX_FIELDS_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise RequestError(
            f"{largest} takes {sizes[largest]} bytes, of {sum(sizes.values())} that {', '.join(sizes)} take; at most "
            f"{MAX_FIELDS_BYTES} are allowed",
            param=largest,
        )
