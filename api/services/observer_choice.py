"""Resolves the setting `--observers` to names. Imports no component."""

from __future__ import annotations

from llmfw.core.base.config import ServerConfig
from llmfw.core.plugin.defaults import default_name
from llmfw.core.plugin.registry import Registry

KIND = "observer"

AUTO = "request-metrics"
"""The observer that "auto" stands for."""


def observers_of(config: ServerConfig, registry: Registry) -> str:
    """Return the names of the observers, or "none".

    "auto" stands for none if the plugin with its observer is left out (`--no-plugin`).
    """
    if config.observers != "auto":
        return config.observers
    is_there = any(entry.name == AUTO for entry in registry.entries(KIND))
    return default_name(registry, KIND, AUTO) if is_there else "none"
