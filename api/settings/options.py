"""The options of `llmfw serve`, derived from the declarations in ServerConfig and EngineConfig.

Does not depend on the server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from typing import Any

import click
from click.core import ParameterSource
from msgspec.inspect import DictType, FloatType, IntType, VarTupleType

from llmfw.core.base.allowed_values import choices_of, kind_of
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.setting import Declared, Setting, declared
from llmfw.core.plugin.defaults import default_name

from .click_types import FiniteNumber, Lines, Name, Names, OneOf, PluginName, WholeNumber
from .component_options import Assignment, collect
from .config_file import read_config
from .key_options import ApiKey, check_key, check_keys
from .loaded_plugins import leave_out, plugins_of
from .option import SettingOption

DEFAULT_MODEL = "demo"

_MODEL = Setting(
    "The model, in place of the argument MODEL.",
    flag="--model",
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


_SPECIAL: dict[str, dict[str, Any]] = {
    # Eager and first, because the other options take values from the file.
    "config": {
        "envvar": "LLMFW_CONFIG",
        "is_eager": True,
        "expose_value": False,
        "callback": read_config,
    },
    "help_component": {"is_eager": True, "expose_value": False, "callback": _show_component},
    "api_key": {"type": ApiKey(), "callback": check_keys},
    "admin_api_key": {"type": ApiKey(named=False), "callback": check_key},
    "chat_template": {"type": Name("chat_template", or_file=True)},
    "log_level": {"is_eager": True, "callback": _debug},
    "adapters": {"type": Lines()},
    "options": {"type": Assignment(), "callback": collect},
    "disabled_plugins": {"type": PluginName(), "is_eager": True, "callback": leave_out},
}
"""Maps a field to the attributes of its click option that do not follow from its declaration."""


def setting_options(*, without: Collection[str] = ()) -> list[SettingOption]:
    """Return the options of all settings, in the order of the help.

    Args:
        without: names of fields to leave out.
    """
    group, found = "", []
    for each in _all_declared():
        option = SettingOption(each, **_attributes(each))
        group = option.group = option.group or group
        if option.name not in without:
            found.append(option)
    return found


def _all_declared() -> Iterator[Declared]:
    yield Declared("config", str | None, None, _CONFIG)
    yield Declared("show_config", bool, False, _SHOW_CONFIG)
    yield Declared("help_component", str | None, None, _HELP_COMPONENT)
    of_engine = {each.field for each in declared(EngineConfig)}
    yield from (each for each in declared(ServerConfig) if each.field not in of_engine)
    yield from declared(EngineConfig)


def _attributes(each: Declared) -> dict[str, Any]:
    """Return the attributes of a field's click option, which follow from the values that the field may have."""
    return {
        "type": _type_of(each),
        "multiple": isinstance(kind_of(each.annotation), VarTupleType | DictType),
    } | (_SPECIAL.get(each.field, {}))


def _type_of(each: Declared) -> click.ParamType[Any, Any] | None:
    kind, setting = kind_of(each.annotation), each.setting
    if choices := choices_of(each.annotation):
        return OneOf(choices)
    if isinstance(kind, IntType):
        return WholeNumber(kind.ge, kind.le)
    if isinstance(kind, FloatType):
        is_open = kind.gt is not None
        return FiniteNumber(kind.gt if is_open else kind.ge, kind.le, min_open=is_open)
    if setting.kind:
        return (Names if setting.several else Name)(setting.kind, also=setting.words)
    return None


def like(
    field: str, name: str = "", *, about: str = "", unset: str = "", default: Any = None, **attrs: Any
) -> SettingOption:
    """Return the option of a setting for another command. It can be set only on the command line.

    Args:
        field: name of the field.
        name: name of the command's parameter; "": the field's name.
        about: help text; "": the setting's.
        unset: text that says what happens without the option; "": the setting's, unless there is a default.
        default: default value; None: the setting's.
        attrs: attributes of the click option to override.
    """
    [each] = (each for each in _all_declared() if each.field == field)
    setting = dataclasses.replace(
        each.setting,
        help=about or each.setting.help,
        unset=unset or ("" if default is not None else each.setting.unset),
        flag=each.flag,
        group="",
        is_local=True,
    )
    changes = {"field": name or field, "default": each.default if default is None else default}
    return SettingOption(dataclasses.replace(each, setting=setting, **changes), **_attributes(each) | attrs)


def model_option() -> SettingOption:
    """Return the option `--model`, an alternative to the argument MODEL."""
    return SettingOption(Declared("model_option", str | None, None, _MODEL))


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
    """Return all names that settings may have in a config file: name → name of the option's parameter."""
    return {
        name.removeprefix("--"): str(option.name)
        for option in (model_option(), *setting_options())
        if not option.setting.is_local
        for name in option.opts
        if name.startswith("--")
    }
