"""Reads the allowed values of a settings struct's fields from their annotations.

The command line derives its options from the values (`api/settings/option.py`), and `check_fields` enforces
them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

import msgspec

from .errors import ConfigError
from .setting import declared


@dataclass(frozen=True, slots=True)
class Values:
    """Allowed values of one field.

    Attributes:
        type: int or float; None: the field is not a number.
        least: lower bound of a number.
        most: upper bound of a number; None: no bound.
        is_open: whether the lower bound itself is excluded.
        choices: the only allowed values; empty: the field is not a choice.
    """

    type: type[int] | type[float] | None = None
    least: float = 0
    most: float | None = None
    is_open: bool = False
    choices: tuple[str, ...] = ()

    def __contains__(self, value: object) -> bool:
        if self.choices:
            return value in self.choices
        if self.type is None:
            return True
        kind = int if self.type is int else int | float
        if not isinstance(value, kind) or isinstance(value, bool):
            return False
        if isinstance(value, float) and not math.isfinite(value):
            return False
        is_enough = value > self.least if self.is_open else value >= self.least
        return is_enough and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        """Return text that completes "it must be …", such as "a whole number, at least 1"."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        number = "a whole number" if self.type is int else "a finite number"
        least = f"{'above' if self.is_open else 'at least'} {self.least}"
        return f"{number}, {least}" + ("" if self.most is None else f" and at most {self.most}")


@cache
def values_of(struct: type[msgspec.Struct]) -> dict[str, Values]:
    """Return the allowed values of each field, by name.

    None, which some fields also allow, is not included.
    """
    return {field.name: _values(field.type) for field in msgspec.structs.fields(struct)}


def check_fields(struct: type[msgspec.Struct], settings: Mapping[str, object]) -> None:
    """Raise ConfigError if a setting has a value that its field does not allow."""
    known = values_of(struct)
    for name, value in settings.items():
        if value is not None and name in known and value not in known[name]:
            flags = {each.field: each.flag for each in declared(struct)}
            raise ConfigError(f"{flags.get(name, name)} is {value!r}; it must be {known[name]}")


def _values(annotation: object) -> Values:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return next(map(_values, (each for each in args if each is not NoneType)))
    if origin is Literal:
        return Values(choices=args)
    if origin is Annotated:
        bounds = next((note for note in args[1:] if isinstance(note, msgspec.Meta)), None)
        if bounds is None:
            return _values(args[0])
        least = bounds.ge if bounds.gt is None else bounds.gt
        return Values(args[0], least or 0, bounds.le, is_open=bounds.gt is not None)
    return Values()
