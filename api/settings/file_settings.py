"""Reads the settings in a config file without a command line, for `LLM(config=FILE)`.

Uses the same reader and the same checks as `llmfw serve --config FILE`. Does not read the environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from llmfw.core.base.errors import ConfigError
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.plugin.option_keys import unified

from .component_options import OPTIONS, ComponentOption
from .options import model_option, setting_options


class FileSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in a config file.

    Attributes:
        values: field of EngineConfig or ServerConfig → value.
        model: name of the model; None if the file does not set it.
        component_options: options of components, each with its source.
    """

    values: Mapping[str, Any] = {}
    model: str | None = None
    component_options: tuple[ComponentOption, ...] = ()

    @property
    def options(self) -> dict[str, OptionValue]:
        """Options of components, "kind.key" → value."""
        return {option.key: option.value for option in self.component_options}

    def options_without(self, given: Iterable[str]) -> list[ComponentOption]:
        """Return the file's options of components, except those with these keys, which are given elsewhere."""
        overridden = set(map(unified, given))
        return [option for option in self.component_options if unified(option.key) not in overridden]


def read_settings(path: str) -> FileSettings:
    """Return the settings in a config file.

    Raises:
        ConfigError: the file cannot be read, or a key or value in it is wrong; the message names key and
            file.
    """
    options = [*setting_options(without=("options", "show_config", "help_component")), model_option()]
    for option in options:
        option.envvar = None
    try:
        ctx = click.Command("LLM", params=list(options)).make_context("LLM", ["--config", path])
    except click.ClickException as error:
        raise ConfigError(error.format_message()) from error
    from_file = ParameterSource.DEFAULT_MAP
    values = {
        name: value for name, value in ctx.params.items() if ctx.get_parameter_source(name) is from_file
    }
    return FileSettings(
        values=values, model=values.pop("model_option", None), component_options=tuple(ctx.meta[OPTIONS])
    )
