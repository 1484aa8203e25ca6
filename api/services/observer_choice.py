"""Resolves the settings `--observers` and `--otlp-endpoint` to names and options. Imports no component."""

from __future__ import annotations

from collections.abc import Mapping

from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.plugin.defaults import default_name
from llmfw.core.plugin.registry import Registry

KIND = "observer"

AUTO = "request-metrics"
"""The observer that "auto" stands for."""

TRACES = "otel"
"""The observer that `--otlp-endpoint` chooses."""


def observers_of(config: ServerConfig, registry: Registry) -> str:
    """Return the names of the observers, or "none".

    "auto" means "none" if the plugin with its observer is left out (`--no-plugin`).
    """
    names = config.observers
    if names == "auto":
        is_there = any(entry.name == AUTO for entry in registry.entries(KIND))
        names = default_name(registry, KIND, AUTO) if is_there else "none"
    if config.otlp_endpoint is None:
        return names
    traces = default_name(registry, KIND, TRACES)
    given = [] if names == "none" else [name.strip() for name in names.split(",")]
    return ",".join(given if TRACES in given or traces in given else [*given, traces])


def observer_options(config: ServerConfig) -> Mapping[str, OptionValue]:
    """Return the options of components, with the endpoint of `--otlp-endpoint` as one of them.

    Raises:
        ConfigError: the endpoint is given as an option, too.
    """
    if config.otlp_endpoint is None:
        return config.options
    key = f"{KIND}.{TRACES}.endpoint"
    if key in config.options:
        raise ConfigError(f"--otlp-endpoint and -o {key} are both given; give one of them")
    return {**config.options, key: config.otlp_endpoint}
