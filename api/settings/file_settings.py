"""The settings of a config file without a command line: `LLM(config=FILE)`.

The same reader and the same checks as for `llmfw serve --config FILE`. The environment is not read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator, Mapping
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from llmfw.core.base.config import OptionValue
from llmfw.core.base.errors import ConfigError, LLMFWError

from .component_options import OPTIONS, ComponentOption, say_where_from
from .options import model_option, setting_options


class FileSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a config file says.

    Attributes:
        values: by the names of the fields of EngineConfig and ServerConfig.
        model: its name.
        component_options: of components, and where each is from.
    """

    values: Mapping[str, Any] = {}
    model: str | None = None
    component_options: tuple[ComponentOption, ...] = ()

    @property
    def options(self) -> dict[str, OptionValue]:
        """Options of components, "kind.key" → value."""
        return {option.key: option.value for option in self.component_options}

    @contextlib.contextmanager
    def telling_where_from(self, given: Container[str]) -> Iterator[None]:
        """Add to errors about options of components that they are set in the file.

        Args:
            given: keys of those that the caller has set instead.
        """
        try:
            yield
        except LLMFWError as error:
            say_where_from(error, [option for option in self.component_options if option.key not in given])
            raise


def read_settings(path: str) -> FileSettings:
    """Return what a config file says.

    Raises:
        ConfigError: it cannot be read, or a key or value in it is wrong; the message names key and file.
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
