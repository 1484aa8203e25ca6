"""A command-line option for a setting, which the environment and a config file (`config_file`) may set, too.

The command line takes precedence over the environment, and the environment over the file.
"""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource
from msgspec.inspect import BoolType

from llmfw.core.base.allowed_values import kind_of
from llmfw.core.base.setting import Declared

from .other_servers_values import advice_on_value

ENVIRONMENT = "LLMFW_"
"""Prefix of the names of environment variables."""
CONFIG_FILE = "llmfw.config_file"
"""Key in the context's `meta` that holds the path of the config file."""


class SettingOption(click.Option):
    """An option that the environment and a config file may set, too.

    Args:
        declared: the setting. If it has a text for "unset", the option has no default (except for flags), and
            the help shows that text.
        attrs: further attributes of click's `Option`.

    Attributes:
        key: the option's name in a config file: its first long name, without the dashes.
        variable: name of the environment variable; None if there is none.
        group: heading in the help under which the option is listed.
    """

    def __init__(self, declared: Declared, **attrs: Any) -> None:
        self.declared = declared
        self.setting = setting = declared.setting
        self.group = setting.group
        is_flag = isinstance(kind_of(declared.annotation), BoolType)
        default = None if setting.unset and not is_flag else declared.default
        is_shown = default is not None and not is_flag and not attrs.get("multiple")
        names = (declared.flag, *setting.aliases)
        self.key = next(each for each in names if each.startswith("--")).removeprefix("--")
        self.variable = None if setting.is_local else f"{ENVIRONMENT}{self.key.upper().replace('-', '_')}"
        super().__init__(
            (*names, declared.field),
            default=default,
            is_flag=is_flag,
            show_default=is_shown,
            help=setting.help if is_shown else f"{setting.help} Default: {setting.unset}.",
            metavar=setting.metavar or None,
            show_envvar=setting.is_secret,
            **{"envvar": self.variable} | attrs,
        )

    def source(self, ctx: click.Context) -> str | None:
        """Return the environment variable or config file that set the value; None if neither did."""
        found = ctx.get_parameter_source(str(self.name))
        if found is ParameterSource.ENVIRONMENT:
            return str(self.envvar)
        return ctx.meta[CONFIG_FILE] if found is ParameterSource.DEFAULT_MAP else None

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert a value. A file's value is not text to be converted: it must have the setting's type."""
        if ctx.get_parameter_source(str(self.name)) is ParameterSource.DEFAULT_MAP:
            if self.multiple and not isinstance(value, list):
                value = [value]
            self._check(value, ctx, list[str] if self.multiple else None)
        return super().type_cast_value(ctx, value)

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the value for the config struct's field."""
        found = super().process_value(ctx, value)
        if self.setting.turns_off:
            found = False if found else None
        if found is not None and ctx.get_parameter_source(str(self.name)) is not ParameterSource.DEFAULT:
            self._check(found, ctx)
        return found

    def _check(self, value: Any, ctx: click.Context, of: Any = None) -> None:
        # Empty text usually comes from an unset variable of a shell.
        wrong = "empty; leave it out, or give a value" if value == "" else self.declared.fault(value, of)
        if wrong:
            raise click.BadParameter(f"it is {wrong}", ctx, self)

    def handle_parse_result(self, ctx: click.Context, opts: Any, args: list[str]) -> tuple[Any, list[str]]:
        """Read the value. If it is wrong, the error names its source, and explains another server's value."""
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.BadParameter as error:
            if error.param is self and error.param_hint is None and (source := self.source(ctx)):
                error.param_hint = source if source == self.envvar else f"'{self.key}' in {source}"
            here = advice_on_value(str(self.name), self.consume_value(ctx, opts)[0])
            if error.param is self and here:
                text = f"{error.message}; {here}"
                raise click.BadParameter(text, error.ctx, self, error.param_hint) from error
            raise
