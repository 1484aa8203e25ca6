"""The options of `llmfw serve`, derived from the declarations in ServerConfig and EngineConfig.

Does not depend on the server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import click
from click.core import ParameterSource

from llmfw.core.base.allowed_values import Values, values_of
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.setting import Declared, Setting, declared
from llmfw.core.plugin.defaults import default_name

from .click_types import (
    ADAPTER,
    DEVICE,
    TENANT,
    TEXT,
    ChunkSize,
    FiniteRange,
    Name,
    Names,
    PluginName,
    WholeNumber,
)
from .component_options import Assignment, collect
from .config_file import read_config
from .key_options import ApiKey, check_key, check_keys
from .loaded_plugins import leave_out, plugins_of
from .option import SettingOption

Command = Callable[..., Any]

DEFAULT_MODEL = "demo"

_MODEL = Setting(
    "The model, in place of the argument MODEL.",
    aliases=("--model-path",),
    unset=DEFAULT_MODEL,
    metavar="MODEL",
)
_CONFIG = Setting(
    "Read settings and options of components from this TOML file.",
    unset="none is read",
    metavar="FILE",
    is_local=True,
)
_SHOW_CONFIG = Setting(
    "Print all settings and their sources in the form of such a file, and exit.",
    unset="start the server",
    is_local=True,
)
_HELP_COMPONENT = Setting(
    "Print what a component is and its options, as in attention.flashinfer, and exit.",
    unset="start the server",
    metavar="KIND[.NAME]",
    is_local=True,
)


def _show_component(ctx: click.Context, param: click.Parameter, wanted: str | None) -> None:
    if wanted is not None:
        from .component_help import show_component  # imports ast

        show_component(ctx, param, wanted)


def _debug(ctx: click.Context, param: click.Parameter, value: str) -> str:
    ctx.meta["llmfw.debug"] = value == "debug"
    return value


_SPECIAL: dict[str, Callable[[], dict[str, Any]]] = {
    "api_key": lambda: {"type": ApiKey(), "callback": check_keys},
    "admin_api_key": lambda: {"type": ApiKey(named=False), "callback": check_key},
    "adopt_unowned": lambda: {"type": TENANT},
    "device": lambda: {"type": DEVICE},
    "chat_template": lambda: {"type": Name("chat_template", or_file=True)},
    "chunked_prefill_size": lambda: {"type": ChunkSize(min=-1)},
    "log_level": lambda: {"is_eager": True, "callback": _debug},
    "adapters": lambda: {"type": ADAPTER},
    "options": lambda: {"type": Assignment(), "callback": collect},
    "disabled_plugins": lambda: {"type": PluginName(), "is_eager": True, "callback": leave_out},
}
"""Maps a field to the attributes of its click option that do not follow from its declaration."""


def setting_options(*, without: Collection[str] = ()) -> list[SettingOption]:
    """Return the options of all settings, in the order of the help.

    Args:
        without: names of fields to leave out.
    """
    group, found = "", []
    for option in _all_options():
        group = option.group = option.group or group
        if option.name not in without:
            found.append(option)
    return found


def _all_options() -> Iterator[SettingOption]:
    # Eager and first, because the other options take values from the file.
    yield SettingOption(
        "config", _CONFIG, flag="--config", type=TEXT, envvar="LLMFW_CONFIG", is_eager=True, expose_value=False,
        callback=read_config,
    )  # fmt: skip
    yield SettingOption("show_config", _SHOW_CONFIG, flag="--show-config", is_flag=True)
    yield SettingOption(
        "help_component",
        _HELP_COMPONENT,
        flag="--help-component",
        is_eager=True,
        expose_value=False,
        callback=_show_component,
    )
    of_engine = {each.field for each in declared(EngineConfig)}
    for struct in (ServerConfig, EngineConfig):
        values = values_of(struct)
        for each in declared(struct):
            if struct is EngineConfig or each.field not in of_engine:
                yield _option(each, values[each.field])


def _option(each: Declared, values: Values) -> SettingOption:
    if each.type is bool:
        attrs: dict[str, Any] = {"is_flag": True}
    else:
        attrs = {"multiple": each.type in (tuple, dict), "type": _type_of(each, values)}
    special = _SPECIAL.get(each.field, dict)()
    return SettingOption(each.field, each.setting, flag=each.flag, default=each.default, **attrs | special)


def like(field: str, name: str = "", **changes: Any) -> Callable[[Command], Command]:
    """Return a decorator that adds the option of an engine setting to a command.

    The option can be set only on the command line.

    Args:
        field: name of the EngineConfig field.
        name: name of the command's parameter; "": the field's name.
        changes: attributes of the option to override.
    """
    [each] = (each for each in declared(EngineConfig) if each.field == field)
    own = _option(each, values_of(EngineConfig)[field])
    attrs: dict[str, Any] = {
        "type": own.type,
        "metavar": own.metavar,
        "default": own.default,
        "help": own.help,
    } | changes
    if "default" in changes:
        attrs["help"] = changes.get("help", each.setting.help)
    return click.option(*own.opts, name or field, show_default=attrs["default"] is not None, **attrs)


def _type_of(each: Declared, values: Values) -> click.ParamType[Any, Any]:
    """Return the click type for the values that a field may have."""
    if values.choices:
        return click.Choice(values.choices)
    if values.type is int:
        return WholeNumber(int(values.least), None if values.most is None else int(values.most))
    if values.type is float:
        return FiniteRange(values.least, values.most, min_open=values.is_open)
    if not each.setting.kind:
        return TEXT
    named = Names if each.setting.several else Name
    return named(each.setting.kind, also=each.setting.words)


def model_option() -> SettingOption:
    """Return the option `--model`, an alternative to the argument MODEL."""
    return SettingOption("model_option", _MODEL, flag="--model")


def model_of(model: str | None, model_option: str | None) -> str:
    """Return the model given by the argument MODEL or by `--model`; raise UsageError if both are given."""
    ctx = click.get_current_context()
    if model is not None and ctx.get_parameter_source("model_option") is not ParameterSource.COMMANDLINE:
        return model
    if model is not None and model_option is not None:
        raise click.UsageError(f"MODEL is given twice: {model!r} and --model {model_option!r}")
    given = [name for name in (model, model_option) if name is not None]
    return given[0] if given else default_name(plugins_of(ctx).registry, "model", DEFAULT_MODEL)


def config_names() -> dict[str, str]:
    """Return all names that settings may have in a config file: name → key of its option."""
    return {
        name.removeprefix("--"): option.key
        for option in (model_option(), *setting_options())
        if not option.setting.is_local
        for name in option.opts
        if name.startswith("--")
    }
