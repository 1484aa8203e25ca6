"""Converts a component's options, from text of the command line or typed values of a file, to its `Options`.

`registry` imports this only to build options, so that commands which only list components start without msgspec.
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
    """The options of a component whose class declares none."""


def option_text(value: OptionValue) -> str:
    """Return an option's value as text; `converted` restores the value."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def converted(given: Mapping[str, OptionValue], struct: type[Any]) -> Any:
    """Return an `Options` struct of some values; lists and objects may be given as JSON text.

    Raises:
        ValidationError: of msgspec: a value is not of its field's type.
    """
    try:
        return msgspec.convert(given, struct, strict=False)
    except ValidationError:
        read = {key: _from_json(value) for key, value in given.items()}
        if read == given:
            raise
    return msgspec.convert(read, struct, strict=False)


def at_fault(given: Mapping[str, OptionValue], error: ValidationError, kind: str) -> str:
    """Return the option that an error is about, and its value, as "kind.key is value: "; "" if that is unknown.

    Leaves out a value that may be a URL, because it may contain a password.
    """
    found = re.search(r"`\$\.(\w+)", str(error))
    if found is None or found[1] not in given:
        return ""
    value = option_text(given[found[1]])
    return f"{kind}.{found[1]}: " if "://" in value else f"{kind}.{found[1]} is {value!r}: "


def _from_json(value: OptionValue) -> Any:
    """Return the parsed value of a text that is a JSON list or object."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(value)
    return value


def with_keywords(component: type[ComponentT], keywords: Mapping[str, Any]) -> type[ComponentT]:
    """Return a subclass of a component that is always built with these keywords; the class itself if there are none.

    So code that builds components one at a time (parsers: one per choice) need not know about options.
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
