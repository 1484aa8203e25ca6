"""`--show-config`: prints the effective settings and their sources, as a file that `--config` can read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import click
from click.core import ParameterSource

from llmfw.core.base.secret_name import is_secret_option

from .component_options import OPTIONS, ComponentOption, table_of
from .models import ModelChoice
from .option import SettingOption

_PASSWORD = re.compile(r"://[^:@/?\s]*:[^@\s]*@")
"""Matches a URL that contains a password."""
_COMMAND_LINE = "command line"


def shown_config(ctx: click.Context, models: Sequence[ModelChoice]) -> str:
    """Return the settings of a parsed command line in TOML.

    Leaves out API keys, and component options that are secrets by their name or contain a URL with a password.

    Args:
        models: the models, from the argument and the option.
    """
    return "".join(f"{line}\n" for line in _lines(ctx, models))


def _lines(ctx: click.Context, models: Sequence[ModelChoice]) -> Iterator[str]:
    yield "# The settings of `llmfw serve`, and where each is from. Lines that start with # are not set."
    for option in ctx.command.params:
        if isinstance(option, SettingOption) and not option.setting.is_local:
            if option.name == "model_option":
                is_argument = ctx.params["model"] is not None
                shown = [f"{each.name}={each.path}" if each.name else each.path for each in models]
                yield _line(
                    "model",
                    shown if len(shown) > 1 else shown[0],
                    _COMMAND_LINE if is_argument else _source(option, ctx),
                )
            else:
                yield _setting(option, ctx)
    found: dict[str, list[ComponentOption]] = {}
    for component_option in ctx.meta[OPTIONS]:
        found.setdefault(component_option.key.rpartition(".")[0], []).append(component_option)
    for prefix, options in found.items():
        yield f"\n{table_of(prefix)}"
        for each in options:
            name, source = each.key.rpartition(".")[2], each.source or _COMMAND_LINE
            is_secret = is_secret_option(each.key) or _PASSWORD.search(str(each.value)) is not None
            yield f"# {name}: not shown  # {source}" if is_secret else _line(name, each.value, source)


def _setting(option: SettingOption, ctx: click.Context) -> str:
    value, source = ctx.params[str(option.name)], _source(option, ctx)
    if option.setting.turns_off:
        value = value is not None
    if value is None or (value == () and source == "default"):
        return f"# {option.key}: {option.setting.unset}"
    if option.setting.is_secret:
        return f"# {option.key}: not shown  # {source}"
    return _line(option.key, list(value) if isinstance(value, tuple) else value, source)


def _source(option: SettingOption, ctx: click.Context) -> str:
    given = ctx.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
    return _COMMAND_LINE if given else option.source(ctx) or "default"


def _line(key: str, value: Any, source: str) -> str:
    key = key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)
    return f"{key} = {_toml(value)}  # {' '.join(source.split())}"


def _toml(value: Any) -> str:
    """Return a value in TOML, on one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {_toml(each)}' for key, each in value.items())}}}"
    if isinstance(value, float):
        return repr(value)  # JSON has other names for inf and nan
    # JSON writes whole numbers, booleans and strings like TOML, except for one character that it does not escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
