"""Converts the options of a component, from the command line's text or a file's typed values, to its
`Options`.

`registry` imports this module only to build options, so that commands that only list components start without
msgspec.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import ValidationError

from llmfw.core.base.allowed_values import allowed_by, as_text
from llmfw.core.base.setting_types import OptionValue

__all__ = [
    "NoOptions",
    "ValidationError",
    "converted",
    "default_of",
    "fault_of",
    "fault_of_default",
    "with_keywords",
    "wrong_default",
]

ComponentT = TypeVar("ComponentT")


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `Options` of a component whose class declares no options."""


def converted(given: Mapping[str, OptionValue], struct: type[Any]) -> Any:
    """Convert options to an `Options` struct. Accepts lists and objects as JSON text, too.

    Raises:
        ValidationError: a value does not have the type of its field.
    """
    try:
        return msgspec.convert(given, struct, strict=False)
    except ValidationError:
        read = {key: _from_json(value) for key, value in given.items()}
        if read == given:
            raise
    return msgspec.convert(read, struct, strict=False)


def fault_of_default(field: Any) -> str | None:
    """Return why the default of a msgspec Struct's field is not a valid value of the field.

    Returns None if it is valid, or if there is no default.
    """
    default = default_of(field)
    if default is msgspec.NODEFAULT:
        return None
    try:
        msgspec.convert(msgspec.to_builtins(default), field.type)
    except (msgspec.ValidationError, TypeError) as error:
        return str(error)
    return None


def default_of(field: Any) -> Any:
    """Return the default of a msgspec Struct's field, or `msgspec.NODEFAULT`."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


class WrongDefault(msgspec.Struct, frozen=True):
    """An option whose default is not one of the values that it allows."""

    name: str
    default: Any
    fault: str

    def __str__(self) -> str:
        return f"the default of its option {self.name!r}, {self.default!r}, is refused: {self.fault}"


def wrong_default(struct: type[Any], given: Mapping[str, OptionValue]) -> WrongDefault | None:
    """Return an option whose default is used and is not valid; None if there is none."""
    for field in msgspec.structs.fields(struct):
        if field.encode_name not in given and (fault := fault_of_default(field)) is not None:
            return WrongDefault(
                field.encode_name, default_of(field), f"{fault}; it must be {allowed_by(field.type)}"
            )
    return None


def fault_of(given: Mapping[str, OptionValue], error: ValidationError, prefix: str, struct: type[Any]) -> str:
    """Return an error's text with the option "prefix.key" that caused it, its value and the allowed values.

    Omits a value that looks like a URL, because a URL may contain a password.
    """
    found = re.search(r"`\$\.(\w+)(.*)`$", str(error))
    if found is None or found[1] not in given:
        return str(error)
    [field] = (each for each in msgspec.structs.fields(struct) if each.encode_name == found[1])
    value = given[found[1]]
    shown = "a URL" if "://" in as_text(value) else repr(value)
    wrong = (
        str(error) if found[2] else f"it must be {allowed_by(field.type)}"
    )  # `error` is about an item of a list
    return f"{prefix}.{found[1]} is {shown}; {wrong}"


def _from_json(value: OptionValue) -> Any:
    """Parse a text that is a JSON list or object; return any other value unchanged."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(value)
    return value


def with_keywords(component: type[ComponentT], keywords: Mapping[str, Any]) -> type[ComponentT]:
    """Return a subclass of a component's class whose constructor adds these keyword arguments.

    Returns the class itself if there are no keyword arguments. Code that builds many objects, such as one
    parser per choice, then need not pass the options.
    """
    if not keywords:
        return component

    def build(self: Any, *args: Any, **given: Any) -> None:
        component.__init__(self, *args, **{**given, **keywords})

    about = {
        "__module__": component.__module__,
        "__qualname__": component.__qualname__,
        "__doc__": component.__doc__,
    }
    return type(component.__name__, (component,), about | {"__init__": build})
