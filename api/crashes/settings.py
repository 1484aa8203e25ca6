"""The effective settings of a server as plain data, without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.secret_name import is_secret_option
from llmfw.core.base.setting import declared

from .secrets import strings_in

NOT_SHOWN = "not shown"
"""Stands for keys, and for options of components whose names say that they are secrets."""


def shown_settings(engine: EngineConfig, server: ServerConfig) -> dict[str, Any]:
    """Return all settings by the names of their fields, without secrets. Passwords in URLs are not hidden."""
    found: dict[str, Any] = {"model": engine.model}
    for config in (server, engine):
        for each in declared(type(config)):
            value = getattr(config, each.field)
            found[each.field] = NOT_SHOWN if each.setting.is_secret and value else value
    found["options"] = {
        name: NOT_SHOWN if is_secret_option(name) else value for name, value in engine.options.items()
    }
    return found


def secrets_of(server: ServerConfig) -> Iterator[str]:
    """Yield all texts of secret settings, and of secret options of components."""
    for each in declared(ServerConfig):
        if each.setting.is_secret:
            yield from strings_in(getattr(server, each.field))
    for name, value in server.options.items():
        if is_secret_option(name):
            yield from strings_in(value)
