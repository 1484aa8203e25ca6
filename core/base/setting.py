"""Describes settings for users: help text, option names and so on.

A setting is a field of a config struct. The field defines type, range and default; a `Setting` in its
annotation defines the rest. Options of the command line, environment variables, keys of the config file and
tables of the docs are generated from both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec


@dataclass(frozen=True, slots=True)
class Setting:
    """Description of one field for users.

    Attributes:
        help: help text of one or two sentences, to which the default is added.
        flag: name of the option, such as `--no-plugin`; empty: derived from the field's name.
        aliases: further names of the option.
        unset: text that says what happens without the option; empty: the field's default applies.
        kind: kind of the component that the value names.
        words: allowed values in addition to the names of components, such as "auto".
        several: whether the value may name several components, separated by commas.
        metavar: placeholder of the value in the help; empty: derived from the type.
        group: heading in the help that starts at this option.
        turns_off: whether the option is a flag that sets the field to False.
        is_secret: whether the value is never shown.
        is_local: whether environment variables and the config file cannot set it.
    """

    help: str
    flag: str = ""
    aliases: tuple[str, ...] = ()
    unset: str = ""
    kind: str = ""
    words: tuple[str, ...] = ()
    several: bool = False
    metavar: str = ""
    group: str = ""
    turns_off: bool = False
    is_secret: bool = False
    is_local: bool = False


@dataclass(frozen=True, slots=True)
class Declared:
    """A setting, together with the name, type and default of its field.

    Attributes:
        field: name of the field.
        type: type of the field's values: bool, int, float, str, tuple or dict; str for a choice.
        default: default value; `msgspec.NODEFAULT` if there is none.
    """

    field: str
    type: type
    default: Any
    setting: Setting

    @property
    def flag(self) -> str:
        """Name of the command-line option, such as `--page-size`."""
        return self.setting.flag or f"--{self.field.replace('_', '-')}"


@cache
def declared(struct: type[msgspec.Struct]) -> tuple[Declared, ...]:
    """Return the settings of a struct, in the order of its fields."""
    return tuple(_declared(struct))


def _declared(struct: type[msgspec.Struct]) -> Iterator[Declared]:
    for field in msgspec.structs.fields(struct):
        notes = get_args(field.type) if get_origin(field.type) is Annotated else ()
        setting = next((note for note in notes if isinstance(note, Setting)), None)
        if setting is not None:
            yield Declared(field.name, _plain(field.type), field.default, setting)


def _plain(annotation: Any) -> type:
    """Return the class of the values that an annotation allows, not counting None."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _plain(args[0])
    if origin in (Union, UnionType):
        return _plain(next(each for each in args if each is not NoneType))
    if isinstance(origin, type):
        return origin
    return annotation if isinstance(annotation, type) else str
