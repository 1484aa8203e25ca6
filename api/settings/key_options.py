"""API keys on the command line: the type of their options, and warnings about unsafe use."""

from __future__ import annotations

import click
from click.core import ParameterSource

from llmfw.api.access.key_text import hashed, is_short, split_name
from llmfw.core.base.errors import ConfigError


class ApiKey(click.ParamType[tuple[str, str], str | tuple[str, str]]):
    """Option type for an API key: KEY or NAME=KEY, where KEY may be sha256:HEX.

    The converted value is the name ("" if there is none) and sha256:HEX. A key may end with '=', as base64
    does.

    Args:
        named: whether NAME=KEY is accepted, too.
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
    """Callback of a repeatable option of `ApiKey`s: return the keys; raise BadParameter if two are equal."""
    if len({key for _, key in keys}) < len(keys):
        raise click.BadParameter("two keys are the same; give each tenant a key of its own", ctx, param)
    if keys:
        _warn_of_ps(ctx, param)
    return keys


def check_key(ctx: click.Context, param: click.Parameter, key: tuple[str, str] | None) -> str | None:
    """Callback of an option of one `ApiKey`: return the key without its name."""
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
