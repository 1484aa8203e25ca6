"""How users see a setting: what its type does not say of it.

A setting is a field of a config struct. Type, range and default are the field's own; a `Setting` stands in the same
annotation. The options of the command line, the variables of the environment, the keys of the config file and the
tables of the docs follow from both.
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
    """How users see one field.

    Attributes:
        help: one or two sentences. The default is added to them.
        flag: name of the option, if it is not the field's, as in `--page-size`.
        aliases: further names of the option.
        unset: what happens without the option, in words. A setting without these words has the field's default.
        kind: of the component whose name the value is.
        words: values in addition to the names of components, as in "auto".
        metavar: what stands for the value in the help. Follows from the type if it is empty.
        group: heading in the help that starts here.
        turns_off: the option is a flag that sets the field to False.
        is_secret: the value is never shown.
        is_local: neither a variable nor a key of the config file sets it.
    """

    help: str
    flag: str = ""
    aliases: tuple[str, ...] = ()
    unset: str = ""
    kind: str = ""
    words: tuple[str, ...] = ()
    metavar: str = ""
    group: str = ""
    turns_off: bool = False
    is_secret: bool = False
    is_local: bool = False


@dataclass(frozen=True, slots=True)
class Declared:
    """A setting of a struct.

    Attributes:
        field: its name.
        type: of its values: bool, int, float, str, tuple or dict; a choice is a str.
        default: `msgspec.NODEFAULT` if there is none.
    """

    field: str
    type: type
    default: Any
    setting: Setting

    @property
    def flag(self) -> str:
        """Name of the option."""
        return self.setting.flag or f"--{self.field.replace('_', '-')}"


@cache
def declared(struct: type[msgspec.Struct]) -> tuple[Declared, ...]:
    """Return the settings of a struct, in its order."""
    return tuple(_declared(struct))


def _declared(struct: type[msgspec.Struct]) -> Iterator[Declared]:
    for field in msgspec.structs.fields(struct):
        notes = get_args(field.type) if get_origin(field.type) is Annotated else ()
        setting = next((note for note in notes if isinstance(note, Setting)), None)
        if setting is not None:
            yield Declared(field.name, _plain(field.type), field.default, setting)


def _plain(annotation: Any) -> type:
    """Return the class of the values of an annotation."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _plain(args[0])
    if origin in (Union, UnionType):
        return _plain(next(each for each in args if each is not NoneType))
    if isinstance(origin, type):
        return origin
    return annotation if isinstance(annotation, type) else str
