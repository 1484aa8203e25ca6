"""One option of the command line for one field of the config structs, with the field's own default.

It may also come from the environment and from a config file (`config_file`); the command line goes before these, and
the environment before the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.values import values_of

from .params import FiniteRange

Command = Callable[..., Any]

ENVIRONMENT = "LLMFW_"
"""What the names of environment variables begin with."""
CONFIG_FILE = "llmfw.config_file"
"""Key of the context's `meta` for the name of the config file."""


def _defaults() -> dict[str, Any]:
    fields = (*msgspec.structs.fields(ServerConfig), *msgspec.structs.fields(EngineConfig))
    return {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}


DEFAULTS = _defaults()
"""Of the structs' fields, those that have one."""
VALUES = {**values_of(ServerConfig), **values_of(EngineConfig)}
"""That the structs' fields may have."""


class SettingOption(click.Option):
    """An option that the environment and a config file may set, too.

    Args:
        unset: what happens without the option, in words.
        from_elsewhere: whether the environment and a file may set it.

    Attributes:
        key: its name in a config file: its first long name, without the dashes.
        variable: its name in the environment; None: it is not read from there.
    """

    def __init__(
        self, *args: Any, unset: str = "not set", from_elsewhere: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.unset = unset
        self.from_elsewhere = from_elsewhere
        self.key = next(name for name in self.opts if name.startswith("--")).removeprefix("--")
        if from_elsewhere and self.envvar is None:
            self.envvar = f"{ENVIRONMENT}{self.key.upper().replace('-', '_')}"
        self.variable = str(self.envvar) if self.envvar is not None else None

    def source(self, ctx: click.Context) -> str | None:
        """Return where the value is from, if it is not from the command line and not the default."""
        found = ctx.get_parameter_source(self.name)
        if found is ParameterSource.ENVIRONMENT:
            return self.variable
        return ctx.meta[CONFIG_FILE] if found is ParameterSource.DEFAULT_MAP else None

    def handle_parse_result(self, ctx: click.Context, opts: Any, args: list[str]) -> tuple[Any, list[str]]:
        """Take the value; an error says where it is from."""
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.BadParameter as error:
            if error.param is self and not isinstance(error.param_hint, Elsewhere):
                error.param_hint = self._hint(ctx)
            raise

    def _hint(self, ctx: click.Context) -> str | None:
        source = self.source(ctx)
        if source is None or source == self.variable:
            return source
        return f"'{self.key}' in {source}"


class Elsewhere(str):
    """Where a value is from, in an error that knows better than its option."""


def setting(
    *names: str, field: str, type: Any = None, help: str, unset: str = "by device", **kwargs: Any
) -> Callable[[Command], Command]:
    """Return an option that fills a field of the config structs.

    Args:
        names: of the option.
        field: its default is the option's.
        type: of the values; None: those that the field may have.
        unset: what happens without the option, in words, where the field's default is None.
    """
    default = DEFAULTS.get(field)
    if default is None:
        help = f"{help} Default: {unset}."
    shown = default is not None
    return click.option(
        *names,
        field,
        cls=SettingOption,
        type=_values_of(field) if type is None else type,
        default=default,
        show_default=shown,
        help=help,
        unset=unset,
        **kwargs,
    )


def _values_of(field: str) -> click.ParamType[Any, Any]:
    """Return the type of the values that a field may have."""
    values = VALUES[field]
    if values.choices:
        return click.Choice(values.choices)
    if values.type is int:
        return click.IntRange(int(values.least), None if values.most is None else int(values.most))
    if values.type is float:
        return FiniteRange(values.least, values.most, min_open=values.is_open)
    raise TypeError(f"the annotation of {field!r} does not say which values it may have")


def positive() -> click.IntRange:
    """Return the type of a whole number from 1."""
    return click.IntRange(min=1)
