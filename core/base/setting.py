"""Describes settings for users: help text, option names and so on.

A setting is a field of a config struct. The field defines type, range and default; a `Setting` in its
annotation defines the rest. Options of the command line, environment variables, keys of the config file and
tables of the docs are generated from both, and `check_fields` enforces them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin

import msgspec

from .allowed_values import fault_of
from .errors import ConfigError


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
        check: function that returns the end of an error message about a value, such as "write NAME=PATH", or
            "" for a valid value; for rules that the type does not express.
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
    check: Callable[[Any], str] | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """A setting, together with the name, type and default of its field.

    Attributes:
        field: name of the field.
        annotation: type of the field, with its bounds.
        default: default value; `msgspec.NODEFAULT` if there is none.
    """

    field: str
    annotation: Any
    default: Any
    setting: Setting

    @property
    def flag(self) -> str:
        """Name of the command-line option, such as `--page-size`."""
        return self.setting.flag or f"--{self.field.replace('_', '-')}"

    def fault(self, value: object, of: Any = None) -> str:
        """Return the fault of a value, as text that completes "… is"; "" if the value is allowed.

        Args:
            of: type that the value must have; None: the field's type.
        """
        wrong = fault_of(value, self.annotation if of is None else of)
        if not wrong and value is not None and (check := self.setting.check) is not None:
            values = value if isinstance(value, tuple | list) else (value,)
            wrong = next((f"{each!r:.200}; {here}" for each in values if (here := check(each))), "")
        return f"a secret{wrong[wrong.rindex('; ') :]}" if wrong and self.setting.is_secret else wrong


@cache
def declared(struct: type[msgspec.Struct]) -> tuple[Declared, ...]:
    """Return the settings of a struct, in the order of its fields."""
    return tuple(_declared(struct))


def _declared(struct: type[msgspec.Struct]) -> Iterator[Declared]:
    for field in msgspec.structs.fields(struct):
        notes = get_args(field.type) if get_origin(field.type) is Annotated else ()
        setting = next((note for note in notes if isinstance(note, Setting)), None)
        if setting is not None:
            yield Declared(field.name, field.type, field.default, setting)


def check_fields(struct: type[msgspec.Struct], values: Mapping[str, object]) -> None:
    """Raise ConfigError if a setting has a value that its field does not allow."""
    for each in declared(struct):
        if each.field in values and (problem := each.fault(values[each.field])):
            raise ConfigError(f"{each.flag} is {problem}")
