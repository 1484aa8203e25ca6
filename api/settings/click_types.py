"""Click types for options. Component names are looked up only when a value, help or completion needs them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec
from click.core import ParameterSource

from llmfw.core.base.allowed_values import fault_of
from llmfw.core.base.errors import LLMFWError, LostComponentError
from llmfw.core.plugin.defaults import default_name

from .loaded_plugins import plugins_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Name(click.ParamType[str, str]):
    """Option type for the name of a registered component, "name" or "plugin/name".

    Args:
        kind: kind of the component.
        also: further words to accept, such as "auto".
        or_file: whether to accept the path of an existing file, too.
    """

    name = "name"

    def __init__(self, kind: str, *, also: tuple[str, ...] = (), or_file: bool = False) -> None:
        self.kind = kind
        self.also = also
        self.or_file = or_file

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self.also or ctx is None:
            return value
        registry = plugins_of(ctx).registry
        if param is not None and ctx.get_parameter_source(str(param.name)) is ParameterSource.DEFAULT:
            value = default_name(registry, self.kind, value)
        try:
            registry.find(self.kind, value)
        except LLMFWError as error:
            if self.or_file and Path(value).is_file():
                return value
            if isinstance(error, LostComponentError):  # no mistake in the command line: print no usage
                raise
            self.fail(f"{error}; nor is there a file {value!r}" if self.or_file else str(error), param, ctx)
        return value

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join([*self._known(ctx), *(['FILE'] if self.or_file else [])])}]"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name) for name in self._known(ctx) if name.startswith(incomplete)]
        return [*found, CompletionItem(incomplete, type="file")] if self.or_file else found

    def _known(self, ctx: click.Context) -> list[str]:
        return [*self.also, *plugins_of(ctx).registry.names(self.kind)]


class Names(Name):
    """Option type for comma-separated names of components of one kind, or for one of the words `also`."""

    name = "names"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.also:
            for name in value.split(","):
                if name.strip() in self.also:
                    self.fail(f"{name.strip()!r} stands alone, or not at all", param, ctx)
                super().convert(name.strip(), param, ctx)
        return value

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(self.also)}|NAME,…]"


class OneOf(click.Choice[str]):
    """Option type for one of several words."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return f"it is {value!r:.60}; it must be one of {', '.join(self.choices)}"


class WholeNumber(click.IntRange):
    """Option type for a whole number within bounds."""

    name = "n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return _number(self, value, int, param, ctx)


class FiniteNumber(click.FloatRange):
    """Option type for a finite number within bounds. Rejects "nan" and "inf"."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return _number(self, value, float, param, ctx)


def _number(
    bounds: click.IntRange | click.FloatRange,
    value: Any,
    kind: type[int | float],
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> Any:
    """Return the number in a text; raise BadParameter, with the settings' message, if it is not allowed."""
    if not isinstance(value, str):  # a default
        return value
    found: object = value
    with contextlib.suppress(ValueError):
        found = kind(value)
    least, most = bounds.min, bounds.max
    meta = msgspec.Meta(gt=least, le=most) if bounds.min_open else msgspec.Meta(ge=least, le=most)
    if wrong := fault_of(found, Annotated[kind, meta]):
        bounds.fail(f"it is {wrong}", param, ctx)
    return found


class Lines(click.types.StringParamType):
    """Option type for text, such as a path, whose environment variable may have several values, one per line."""

    envvar_list_splitter = "\n"


class PluginName(click.ParamType[str, str]):
    """Option type for the name of a plugin. An environment variable may have several names.

    They are separated by commas or spaces.
    """

    name = "name"

    def split_envvar_value(self, rv: str) -> list[str]:
        return rv.replace(",", " ").split()
