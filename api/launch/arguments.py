"""Turns settings from Python into arguments and environment variables of `llmfw serve`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.inspect import BoolType

from llmfw.core.base.allowed_values import as_text, kind_of
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.setting import Declared, declared
from llmfw.core.base.suggestion import did_you_mean

_SETTINGS = {each.field: each for struct in (ServerConfig, EngineConfig) for each in declared(struct)}
_NOT_HERE = {"uds": "the server is asked over a port, so leave uds out"}


def arguments_of(settings: Mapping[str, Any]) -> list[str]:
    """Return the arguments for settings that are not secrets. None stands for the default.

    Raises:
        ConfigError: a setting is unknown, or cannot be set from Python.
    """
    return [
        text
        for name, value in settings.items()
        if value is not None and not _setting(name).setting.is_secret
        for text in _arguments(_setting(name), value)
    ]


def secrets_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return environment variables for secret settings, because other users can see a process's arguments."""
    return {
        f"LLMFW_{name.upper()}": value if isinstance(value, str) else "\n".join(value)
        for name, value in settings.items()
        if value is not None and _setting(name).setting.is_secret
    }


def _setting(name: str) -> Declared:
    if name in _NOT_HERE:
        raise ConfigError(f"the setting {name!r} cannot be used here: {_NOT_HERE[name]}")
    if name not in _SETTINGS:
        raise ConfigError(
            f"there is no setting {name!r}; see `llmfw serve --help` for all{did_you_mean(name, _SETTINGS)}"
        )
    return _SETTINGS[name]


def _arguments(each: Declared, value: Any) -> list[str]:
    if isinstance(kind_of(each.annotation), BoolType):
        if each.setting.turns_off and value:
            raise ConfigError(f"{each.field} is {value!r}; it must be False, or left out for the default")
        is_given = not value if each.setting.turns_off else value
        return [each.flag] if is_given else []
    if isinstance(value, dict):
        return [text for key, given in value.items() for text in (each.flag, f"{key}={as_text(given)}")]
    if isinstance(value, (list, tuple)):
        return [f"{each.flag}={given}" for given in value]
    return [f"{each.flag}={value}"]
