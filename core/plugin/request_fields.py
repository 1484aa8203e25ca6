"""Checks the declaration of a plugin's request field, and calls its `validate`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from llmfw.core.base.described import message_of
from llmfw.core.base.errors import RequestError
from llmfw.core.interfaces.request_field import GENERATING_ROUTES, RequestField

from .returned import WrongReturnError


def fault_of(found: type[RequestField]) -> str | None:
    """Return the fault in a field's declaration, as the rest of a sentence; None if there is none."""
    routes: Any = found.routes
    if isinstance(routes, str) or not routes or not set(routes) <= set(GENERATING_ROUTES):
        return f"has the routes {routes!r}; they must be some of {', '.join(GENERATING_ROUTES)}"
    if not hasattr(found, "value_type"):
        return "has no value_type; set it to the type of the value, such as int"
    try:
        msgspec.json.Decoder(found.value_type)
        msgspec.json.schema(found.value_type)
    except Exception as error:  # noqa: BLE001 - a plugin's type may be anything
        return f"has the value_type {found.value_type!r}, which msgspec cannot decode: {error}"
    try:
        plain = msgspec.to_builtins(found.default)
        if reason := _why_not_sendable(plain):
            return f"has the default {found.default!r}, which is not sent to the engine: it is {reason}"
        if plain is not None:
            msgspec.convert(plain, found.value_type)
    except Exception as error:  # noqa: BLE001 - a plugin's value may be anything
        return f"has the default {found.default!r}, which does not fit its value_type: {error}"
    return None


def checker(name: str, field: RequestField) -> Callable[[Any], Any]:
    """Return a function that checks a value and returns it as plain data.

    The function raises RequestError if the value is wrong. Any other exception is a fault of the field.

    Args:
        name: name of the field, for errors.
    """

    def validate(value: Any) -> Any:
        try:
            found = field.validate(value)
        except RequestError as error:
            if error.param is not None:
                raise
            raise RequestError(message_of(error), param=name, code=error.code) from error
        except ValueError as error:
            raise RequestError(f"{name} is {_shown(value)}: {error}", param=name) from error
        if found is None:
            raise WrongReturnError("returned None in place of the value")
        plain = msgspec.to_builtins(found)
        if reason := _why_not_sendable(plain):
            if given := _why_not_sendable(msgspec.to_builtins(value)):
                raise RequestError(f"{name} is {given}; send another value", param=name)
            raise WrongReturnError(f"returned {plain!r:.100}, which is {reason}")
        return plain

    return validate


def _why_not_sendable(plain: Any) -> str | None:
    """Return why plain data cannot be sent to the engine, as the rest of "it is"; None if it can."""
    try:
        msgspec.msgpack.encode(plain)
    except OverflowError:
        return "or has an integer of more than 64 bits"
    except UnicodeEncodeError:
        return "or has text with half of a surrogate pair"
    if not _is_finite(plain):
        return "or has NaN or Infinity, which JSON does not know"
    return None


def _is_finite(plain: Any) -> bool:
    """Return whether no number in plain data is NaN or an infinity."""
    if isinstance(plain, float):
        return math.isfinite(plain)
    if isinstance(plain, dict):
        return all(_is_finite(key) and _is_finite(value) for key, value in plain.items())
    return not isinstance(plain, list | tuple) or all(map(_is_finite, plain))


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 100 else f"{text[:100]}…"
