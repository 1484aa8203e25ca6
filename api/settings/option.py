"""An option of the command line, made of a setting, that the environment and a config file may set, too.

The command line goes before these, and the environment before the file (`config_file`).
"""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from llmfw.core.base.setting import Setting

ENVIRONMENT = "LLMFW_"
"""What the names of environment variables start with."""
CONFIG_FILE = "llmfw.config_file"
"""Key of the context's `meta` for the name of the config file."""
_METAVARS = ((click.IntRange, "N"), (click.FloatRange, "NUMBER"))


class SettingOption(click.Option):
    """An option that the environment and a config file may set, too.

    Args:
        name: of the parameter.
        setting: how users see it. Its words for "unset" replace the default, except that of a flag or list.
        flag: name of the option.
        default: without the option.
        attrs: further ones of click's `Option`.

    Attributes:
        key: its name in a config file: its first long name, without the dashes.
        variable: its name in the environment; None: it is not read from there.
        group: heading of the help that it stands under.
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
        """Return the value for the field."""
        found = super().process_value(ctx, value)
        return (False if found else None) if self.setting.turns_off else found

    def source(self, ctx: click.Context) -> str | None:
        """Return where the value is from, if it is not from the command line and not the default."""
        found = ctx.get_parameter_source(str(self.name))
        if found is ParameterSource.ENVIRONMENT:
            return str(self.envvar)
        return ctx.meta[CONFIG_FILE] if found is ParameterSource.DEFAULT_MAP else None

    def handle_parse_result(self, ctx: click.Context, opts: Any, args: list[str]) -> tuple[Any, list[str]]:
        """Take the value; an error says where it is from."""
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.BadParameter as error:
            if error.param is self and not isinstance(error.param_hint, Elsewhere):
                source = self.source(ctx)
                is_variable = source is None or source == self.envvar
                error.param_hint = source if is_variable else f"'{self.key}' in {source}"
            raise


class Elsewhere(str):
    """Where a value is from, in an error that knows better than its option."""


def _metavar(of: Any) -> str | None:
    return next((word for kind, word in _METAVARS if isinstance(of, kind)), None)
