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

from llmfw.core.base.config import OptionValue

__all__ = ["NoOptions", "ValidationError", "at_fault", "converted", "option_text", "with_keywords"]

ComponentT = TypeVar("ComponentT")


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `Options` of a component whose class declares no options."""


def option_text(value: OptionValue) -> str:
    """Return an option's value as text; `converted` restores the value."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


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


def at_fault(given: Mapping[str, OptionValue], error: ValidationError, prefix: str) -> str:
    """Return the option that caused an error as "prefix.key is value: "; "" if the option is unknown.

    Omits a value that looks like a URL, because a URL may contain a password.
    """
    found = re.search(r"`\$\.(\w+)", str(error))
    if found is None or found[1] not in given:
        return ""
    value = option_text(given[found[1]])
    return f"{prefix}.{found[1]}: " if "://" in value else f"{prefix}.{found[1]} is {value!r}: "


def _from_json(value: OptionValue) -> Any:
    """Parse a text that is a JSON list or object; return any other value unchanged."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(value)
    return value


def with_keywords(component: type[ComponentT], keywords: Mapping[str, Any]) -> type[ComponentT]:
    """Return a subclass of a component's class whose constructor adds these keyword arguments.

    Returns the class itself if there are no keyword arguments. So code that builds many objects, such as one
    parser per choice, need not pass the options.
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
