"""A command-line option for a setting, which the environment and a config file (`config_file`) may set, too.

The command line takes precedence over the environment, and the environment over the file.
"""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from llmfw.core.base.setting import Setting

from .other_servers_values import advice_on_value

ENVIRONMENT = "LLMFW_"
"""Prefix of the names of environment variables."""
CONFIG_FILE = "llmfw.config_file"
"""Key in the context's `meta` that holds the path of the config file."""
_METAVARS = ((click.IntRange, "N"), (click.FloatRange, "NUMBER"))


class SettingOption(click.Option):
    """An option that the environment and a config file may set, too.

    Args:
        name: name of the parameter.
        setting: help text, aliases and so on of the setting. If it has a text for "unset", the option has no
            default (except for flags), and the help shows that text.
        flag: name of the option, such as "--port".
        default: value if the option is not given.
        attrs: further attributes of click's `Option`.

    Attributes:
        key: the option's name in a config file: its first long name, without the dashes.
        variable: name of the environment variable; None if there is none.
        group: heading in the help under which the option is listed.
    """

    def __init__(self, name: str, setting: Setting, *, flag: str, default: Any = None, **attrs: Any) -> None:
        is_list = attrs.get("multiple", False)
        default = None if setting.unset and not attrs.get("is_flag") else default
        is_shown = default is not None and not is_list and not attrs.get("is_flag")
        names = (flag, *setting.aliases)
        self.setting = setting
        self.group = setting.group
        self.key = next(each for each in names if each.startswith("--")).removeprefix("--")
        self.variable = None if setting.is_local else f"{ENVIRONMENT}{self.key.upper().replace('-', '_')}"
        super().__init__(
            (*names, name),
            default=default,
            show_default=is_shown,
            help=setting.help if is_shown else f"{setting.help} Default: {setting.unset}.",
            metavar=setting.metavar or _metavar(attrs.get("type")),
            show_envvar=setting.is_secret,
            **{"envvar": self.variable} | attrs,
        )

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the value for the config struct's field."""
        found = super().process_value(ctx, value)
        return (False if found else None) if self.setting.turns_off else found

    def source(self, ctx: click.Context) -> str | None:
        """Return the environment variable or config file that set the value; None if neither did."""
        found = ctx.get_parameter_source(str(self.name))
        if found is ParameterSource.ENVIRONMENT:
            return str(self.envvar)
        return ctx.meta[CONFIG_FILE] if found is ParameterSource.DEFAULT_MAP else None

    def handle_parse_result(self, ctx: click.Context, opts: Any, args: list[str]) -> tuple[Any, list[str]]:
        """Read the value. If it is wrong, the error names its source, and explains another server's value."""
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.BadParameter as error:
            if error.param is self and not isinstance(error.param_hint, Elsewhere):
                source = self.source(ctx)
                is_variable = source is None or source == self.envvar
                error.param_hint = source if is_variable else f"'{self.key}' in {source}"
            if error.param is self and (
                here := advice_on_value(str(self.name), self.consume_value(ctx, opts)[0])
            ):
                text = f"{error.message}; {here}"
                raise click.BadParameter(text, error.ctx, self, error.param_hint) from error
            raise


class Elsewhere(str):
    """A `param_hint` that already names where a wrong value came from, such as a key of a file.

    `SettingOption` keeps such a hint, and sets its own hint in all other errors.
    """


def _metavar(of: Any) -> str | None:
    return next((word for kind, word in _METAVARS if isinstance(of, kind)), None)
