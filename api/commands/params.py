"""Parameter types of the command line.

Names of parts are asked of the registry only when a value, help or completion needs them, so that a command
which names no part never loads a plugin.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from llmfw.api.access.key_text import hashed, is_short, is_tenant, split_name
from llmfw.core.base.errors import ConfigError, LLMFWError, LostPartError
from llmfw.core.plugin.plugins import Plugins, load_plugins

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_DEVICE = re.compile(r"auto|[a-z]+(:\d+)?")
_PLUGINS = "llmfw.plugins"


def plugins_of(ctx: click.Context) -> Plugins:
    """Return the plugins of this command line, loaded once, without those that `--no-plugin` names."""
    if _PLUGINS not in ctx.meta:
        ctx.meta[_PLUGINS] = _load()
    plugins: Plugins = ctx.meta[_PLUGINS]
    return plugins


def _load(disabled: tuple[str, ...] = ()) -> Plugins:
    """Load the plugins, and tell which of them every command has to wait for."""
    plugins = load_plugins(disabled)
    for plugin in plugins.loaded:
        if plugin.slowness is not None:
            click.echo(f"warning: {plugin.slowness}", err=True)
    return plugins


def leave_out(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Callback of `--no-plugin`, which must be eager: whatever asks for a plugin afterwards gets the others."""
    if names:
        try:
            ctx.meta[_PLUGINS] = _load(names)
        except ConfigError as error:
            raise click.BadParameter(str(error), ctx, param) from error
    return names


class Name(click.ParamType[str, str]):
    """The name of a registered part, "name" or "plugin/name".

    Args:
        kind: of the part.
        also: further words that are accepted, such as "auto".
        or_file: the path of an existing file is accepted too.
    """

    name = "name"

    def __init__(self, kind: str, *, also: tuple[str, ...] = (), or_file: bool = False) -> None:
        self.kind = kind
        self.also = also
        self.or_file = or_file

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self.also or ctx is None:
            return value
        try:
            plugins_of(ctx).registry.find(self.kind, value)
        except LLMFWError as error:
            if self.or_file and Path(value).is_file():
                return value
            if isinstance(
                error, LostPartError
            ):  # the command line is right: how it is to be used helps nobody
                raise
            no_file = f"; nor is there a file {value!r}" if self.or_file else ""
            self.fail(f"{error}{no_file}", param, ctx)
        return value

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        choices = [
            *self.also,
            *plugins_of(ctx).registry.names(self.kind),
            *(["FILE"] if self.or_file else []),
        ]
        return f"[{'|'.join(choices)}]"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = [*self.also, *plugins_of(ctx).registry.names(self.kind)]
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return [*found, CompletionItem(incomplete, type="file")] if self.or_file else found


class Names(Name):
    """Names of registered parts of one kind, separated by commas, or one of the further words alone."""

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


class Text(click.ParamType[str, str]):
    """Text that is not empty: an empty one comes from a shell variable that is not set, and means nothing good."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("it is empty; leave the option out, or give a value", param, ctx)
        return value


class ApiKey(click.ParamType[tuple[str, str], str | tuple[str, str]]):
    """A key, or NAME=KEY, where KEY may be sha256:HEX. What comes out is a name and sha256:HEX.

    A key may end with '=', as base64 does.

    Args:
        named: whether NAME= may stand before it.
    """

    name = "key"
    envvar_list_splitter = "\n"

    def __init__(self, *, named: bool = True) -> None:
        self.named = named

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        if not value:
            self.fail("it is empty; leave the option out, or give a value", param, ctx)
        name, key = split_name(value) if self.named else ("", value)
        try:
            kept = hashed(key)
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        if is_short(key):
            _warn(f"an API key has {len(key)} characters, which could be guessed; use 32 random ones")
        return name, kept


def check_keys(
    ctx: click.Context, param: click.Parameter, keys: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """Callback of a repeatable option of `ApiKey`s: return them; each is there once."""
    if len({key for _, key in keys}) < len(keys):
        raise click.BadParameter("two keys are the same; give each tenant a key of its own", ctx, param)
    if keys:
        _warn_of_ps(ctx, param)
    return keys


def check_key(ctx: click.Context, param: click.Parameter, key: tuple[str, str] | None) -> str | None:
    """Callback of an option of one `ApiKey`: return it without a name."""
    if key is None:
        return None
    _warn_of_ps(ctx, param)
    return key[1]


def _warn_of_ps(ctx: click.Context, param: click.Parameter) -> None:
    if ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE:
        option = param.opts[0]
        _warn(f"other users of this machine can see {option} in its list of processes; use {option}-file")


def _warn(message: str) -> None:
    click.echo(f"warning: {message}", err=True)


class TenantName(click.ParamType[str, str]):
    """The name of a tenant."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_tenant(value):
            self.fail(
                f"{value!r} has other characters than letters, digits and '._@-', or more than 64", param, ctx
            )
        return value


class FiniteRange(click.FloatRange):
    """A number within bounds; "nan" and "inf" are none."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class ChunkSize(click.IntRange):
    """A number of tokens from 1, or -1 for "never cut"."""

    def __init__(self) -> None:
        super().__init__(min=-1)

    def convert(self, value: int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size = super().convert(value, param, ctx)
        if size == 0:
            self.fail("0 is not a chunk size; give 1 or more, or -1 to never cut prompts", param, ctx)
        return size


class Device(click.ParamType[str, str]):
    """A device as torch names it, or "auto". Whether it is there is the engine's to find out."""

    name = "device"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _DEVICE.fullmatch(value):
            self.fail(f"{value!r} is not a device; devices are named auto, cpu, cuda, cuda:1, …", param, ctx)
        return value


class PluginName(click.ParamType[str, str]):
    """The name of a plugin; in the environment several, separated by commas or spaces."""

    name = "name"

    def split_envvar_value(self, rv: str) -> list[str]:
        return rv.replace(",", " ").split()
