"""`--config FILE.toml`: settings from a file, for a command whose options are `SettingOption`s.

    port = 8000                   # the long names of the options, without the dashes
    attention = "flashinfer"

    [options.attention]           # as -o attention.workspace_mb=256
    workspace_mb = 256

The values in the file become defaults of the command line, so that the command line and the environment take
precedence. Wrong names and wrong types of values are reported here. Each option checks whether its value is
allowed, as on the command line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from llmfw.core.base.errors import ConfigError
from llmfw.core.base.suggestion import nearest
from llmfw.core.base.unreadable import unreadable
from llmfw.core.base.user_path import user_path
from llmfw.core.plugin.kinds import SEVERAL

from .component_options import OPTIONS, ComponentOption, check_keys
from .option import CONFIG_FILE, SettingOption


def read_config(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    """Callback of `--config`: read the file.

    The option must be eager and come first, because other options take their values from the file.
    """
    if path is None:
        return None
    from .options import config_names  # here, because that module imports this one

    found = _load(Path(path), ctx, param)
    ctx.meta[CONFIG_FILE] = path
    tables = found.pop("options", {})
    known = config_names()
    values: dict[str, Any] = {}
    for key, value in found.items():
        if wrong := _fault_of_key(key, value, values, known):
            raise click.BadParameter(wrong, ctx, param_hint=_place(key, path))
        values[known[key]] = value
    own = {
        each.name
        for each in ctx.command.params
        if isinstance(each, SettingOption) and not each.setting.is_local
    }
    ctx.default_map = {
        name: value for name, value in values.items() if name in own
    }  # the rest is for `serve`
    ctx.meta[OPTIONS] = list(_component_options(tables, ctx, path))
    return path


def _load(path: Path, ctx: click.Context, param: click.Parameter) -> dict[str, Any]:
    import tomllib  # only needed if there is a file

    try:
        path = user_path(path, "the file")
    except ConfigError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    if path.exists() and not path.is_file():
        raise click.BadParameter(f"{str(path)!r} is not a regular file; give a TOML file", ctx, param)
    try:
        text = path.read_text("utf-8")
        if text.startswith("\ufeff"):
            raise ValueError("it starts with a byte order mark; save it as UTF-8 without one")
        return tomllib.loads(text)
    except OSError as error:
        raise click.BadParameter(f"{str(path)!r} cannot be read: {error.strerror}", ctx, param) from error
    except (RecursionError, ValueError) as error:  # not UTF-8, or not TOML
        message = f"{str(path)!r} is not a TOML file: {unreadable(error)}"
        raise click.BadParameter(message, ctx, param) from error


def _fault_of_key(key: str, value: Any, before: Collection[str], known: Mapping[str, str]) -> str:
    """Return the problem with a key of the file; "" if there is none.

    Args:
        before: parameters that other keys have set.
    """
    if key not in known and not isinstance(value, dict):
        meant = nearest(key.replace("_", "-"), known)
        return f"there is no such setting; {f'did you mean {meant!r}?' if meant else 'they are the options of serve'}"
    if isinstance(value, dict):
        what = "it is a table" if key in known else "there is no such table"
        return f"{what}; options of a component stand in [options.{key}]"
    return "the setting is there twice, under two names; keep one" if known[key] in before else ""


def _place(key: str, path: str) -> str:
    return f"'{key}' in {path}"


def _component_options(tables: Any, ctx: click.Context, path: str) -> Iterable[ComponentOption]:
    for kind, table in tables.items() if isinstance(tables, dict) else [("", tables)]:
        place = _place(f"options.{kind}" if kind else "options", path)
        if not isinstance(table, dict):
            raise click.BadParameter(
                "options stand in a table for each kind of component: [options.policy]", ctx, param_hint=place
            )
        for name, value in _flat(table, kind).items():
            place = _place(f"options.{kind}.{name}", path)
            if not isinstance(value, str | int | float | list | dict):
                raise click.BadParameter(
                    f"{value} is neither text nor a number, nor a list", ctx, param_hint=place
                )
            yield check_keys(ComponentOption(f"{kind}.{name}", value, path), ctx, place)


def _flat(table: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a table of options. If the kind has a table for each component, the keys are "name.key"."""
    if kind not in SEVERAL:
        return table
    return {
        f"{name}.{key}" if key else name: value
        for name, inner in table.items()
        for key, value in (inner.items() if isinstance(inner, dict) else [("", inner)])
    }
