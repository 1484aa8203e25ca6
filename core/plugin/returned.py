"""Checks the type of what a component's method returns, by the annotation of the interface's method.

A wrong type would otherwise fail later, outside the component's code, or reach the client.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Union

import msgspec

if TYPE_CHECKING:
    from .registry import Entry

Check = Callable[[Any], None]
"""Raises WrongReturnError if a value has the wrong type."""

_SCALARS = (int, float, bytes)


class WrongReturnError(Exception):
    """A component returned a value of the wrong type, or broke its interface otherwise; the message says how.

    Args:
        entry: registry entry of the component, if the place of the error does not show the component.
    """

    def __init__(self, message: str, entry: Entry | None = None) -> None:
        super().__init__(message)
        self.entry = entry


@functools.cache
def check_of(declared: Callable[..., Any]) -> Check | None:
    """Return the check of the value that an implementation of an interface's method returns.

    Args:
        declared: the method in the interface. For an iterator, the check is for one item.

    Returns:
        None if the annotation names no type that can be checked.
    """
    try:
        kind = typing.get_type_hints(declared).get("return")
    except NameError:  # a type that the interface imports only for the type checker
        return None
    if typing.get_origin(kind) is typing.get_origin(typing.AsyncIterator[bytes]):
        [kind] = typing.get_args(kind)
    return _check(kind)


def _check(kind: Any) -> Check | None:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is str:
        return _check_text
    if kind in _SCALARS:
        return functools.partial(_check_scalar, kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return functools.partial(_check_struct, {kind: _fields_of(kind)})
    if origin in (Union, types.UnionType):
        return _check_of_union([each for each in args if each is not type(None)], type(None) in args)
    if origin in (Sequence, Collection) and (each := _check(args[0])) is not None:
        return functools.partial(_check_collection, origin, each)
    return None


def _check_of_union(kinds: Sequence[Any], is_optional: bool) -> Check | None:
    if all(isinstance(kind, type) and issubclass(kind, msgspec.Struct) for kind in kinds):
        found: Check | None = functools.partial(_check_struct, {kind: _fields_of(kind) for kind in kinds})
    else:
        found = _check(kinds[0]) if len(kinds) == 1 else None
    return functools.partial(_check_optional, found) if is_optional and found is not None else found


def _fields_of(kind: type[msgspec.Struct]) -> tuple[tuple[str, Check], ...]:
    """Return the names and checks of a struct's fields that can be checked."""
    hints = typing.get_type_hints(kind)
    checks = ((name, _check(hints[name])) for name in kind.__struct_fields__)
    return tuple((name, check) for name, check in checks if check is not None)


def _check_text(value: Any) -> None:
    if type(value) is not str:  # a subclass may give wrong lengths, or slices that are not its own
        raise _wrong(value, "plain str" if isinstance(value, str) else "text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise WrongReturnError(f"returned text with half of a surrogate pair: {value!a:.80}") from error


def _check_scalar(kind: type, value: Any) -> None:
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise _wrong(value, kind.__name__)


def _check_optional(check: Check, value: Any) -> None:
    if value is not None:
        check(value)


def _check_collection(kind: type, check: Check, value: Any) -> None:
    is_list = type(value) is list or type(value) is tuple
    if not is_list and (isinstance(value, str | bytes) or not isinstance(value, kind)):
        raise _wrong(value, "a list")
    for each in value:
        check(each)


def _check_struct(kinds: dict[type, tuple[tuple[str, Check], ...]], value: Any) -> None:
    fields = kinds.get(type(value))
    if fields is None:
        fields = next((kinds[kind] for kind in kinds if isinstance(value, kind)), None)
        if fields is None:
            raise _wrong(value, " or ".join(kind.__name__ for kind in kinds))
    for name, check in fields:
        try:
            check(getattr(value, name))
        except WrongReturnError as error:
            raise WrongReturnError(f"{type(value).__name__}.{name}: {error}") from None


def _wrong(value: Any, expected: str) -> WrongReturnError:
    return WrongReturnError(f"returned {value!r:.80} ({type(value).__name__}) in place of {expected}")
