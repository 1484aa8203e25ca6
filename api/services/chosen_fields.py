"""Resolves which request fields of plugins are active. Imports no component and no schema."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.plugin.choice import choose
from llmfw.core.plugin.option_keys import refuse_options_of_others
from llmfw.core.plugin.registration import GETS_FIELDS
from llmfw.core.plugin.registry import Entry, Registry

from .observer_choice import observers_of

KIND = "request_field"


def chosen_fields(engine: EngineConfig, server: ServerConfig, registry: Registry) -> list[Entry]:
    """Return the request fields that `--request-fields` names, or that a chosen component needs.

    Raises:
        ConfigError: a field is unknown, several fields have the same name, or an option is for a field that
            is not chosen.
    """
    entries = list(choose(registry, KIND, server.request_fields).entries)
    for user in _users(engine, server, registry):
        for name in user.needs_fields:
            if name.rpartition("/")[2] not in {entry.name for entry in entries}:
                entries.append(_needed(user, name, registry))
    names = [entry.name for entry in entries]
    for entry in entries:
        if names.count(entry.name) > 1:
            full = ", ".join(each.full_name for each in entries if each.name == entry.name)
            raise ConfigError(f"several request fields are named {entry.name!r}: {full}; choose one of them")
    refuse_options_of_others(
        KIND,
        [name for entry in entries for name in (entry.name, entry.full_name)],
        server.options,
        "--request-fields NAME,NAME",
    )
    return entries


def _users(engine: EngineConfig, server: ServerConfig, registry: Registry) -> Iterator[Entry]:
    """Yield the chosen components that may need request fields."""
    chosen = engine.policy, engine.drafter, observers_of(server, registry), engine.logits_processors
    settings = dict(zip(GETS_FIELDS, chosen, strict=True))
    for kind, setting in settings.items():
        try:
            yield from choose(registry, kind, setting).entries
        except ConfigError:  # reported where the component is built
            continue


def _needed(user: Entry, name: str, registry: Registry) -> Entry:
    """Return the field that a component needs. If several plugins have it, prefer the component's plugin."""
    if "/" not in name:
        with contextlib.suppress(ConfigError):
            return registry.find(KIND, f"{user.plugin}/{name}")
    try:
        return registry.find(KIND, name)
    except ConfigError as error:
        raise ConfigError(f"{user} needs the request field {name!r}: {error}") from error
