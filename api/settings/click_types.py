"""Click types for options. Component names are looked up only when a value, help or completion needs them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from llmfw.api.access.key_text import is_tenant
from llmfw.core.base.adapter_name import split_adapter
from llmfw.core.base.errors import ConfigError, LLMFWError, LostComponentError
from llmfw.core.plugin.defaults import default_name

from .loaded_plugins import plugins_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EMPTY = "it is empty; leave the option out, or give a value"
_DEVICE = re.compile(r"auto|[a-z]+(:\d+)?")


class Checked(click.ParamType[str, str]):
    """Option type for text that passes a check.

    Args:
        check: function that returns the problem with a text, or "".
    """

    def __init__(self, name: str, check: Callable[[str], str]) -> None:
        self.name = name
        self._check = check

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if wrong := self._check(value):
            self.fail(wrong, param, ctx)
        return value


def _wrong_adapter(value: str) -> str:
    try:
        split_adapter(value)
    except ConfigError as error:
        return str(error)
    return ""


# Empty text is rejected: it usually comes from an unset shell variable.
TEXT = Checked("text", lambda value: "" if value else EMPTY)
TENANT = Checked(
    "name",
    lambda value: (
        ""
        if is_tenant(value)
        else f"{value!r} has other characters than letters, digits and '._@-', or more than 64"
    ),
)
ADAPTER = Checked("name=path", _wrong_adapter)
DEVICE = Checked(
    "device",
    lambda value: (
        ""
        if _DEVICE.fullmatch(value)
        else f"{value!r} is not a device; devices are named auto, cpu, cuda, cuda:1, …"
    ),
)


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


class WholeNumber(click.IntRange):
    """Option type for a whole number within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str) and not _is(int, value):
            self.fail(
                f"{value!r:.60} is not a whole number; it must be {_bounds(self.min, self.max)}", param, ctx
            )
        return super().convert(value, param, ctx)


class FiniteRange(click.FloatRange):
    """Option type for a finite number within bounds. Rejects "nan" and "inf"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, str) and not _is(float, value):
            self.fail(f"{value!r:.60} is not a number; it must be {_bounds(self.min, self.max)}", param, ctx)
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class ChunkSize(WholeNumber):
    """Option type for a number of tokens, 1 or more, or -1 for "never split"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size = super().convert(value, param, ctx)
        if size == 0:
            self.fail("0 is not a chunk size; give 1 or more, or -1 to never cut prompts", param, ctx)
        return size


class PluginName(click.ParamType[str, str]):
    """Option type for the name of a plugin. An environment variable may have several names.

    They are separated by commas or spaces.
    """

    name = "name"

    def split_envvar_value(self, rv: str) -> list[str]:
        return rv.replace(",", " ").split()


def _is(kind: type[int | float], text: str) -> bool:
    """Return whether a text is a number of this kind."""
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _bounds(least: float | None, most: float | None) -> str:
    if most is None:
        return "a number" if least is None else f"{least} or more"
    return f"at most {most}" if least is None else f"{least} to {most}"
