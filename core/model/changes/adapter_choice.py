"""Chooses the model adapter, which makes a model's layers use llmfw's attention: `--model-adapter`."""

from __future__ import annotations

import itertools
import logging
from typing import Any

from llmfw.core.base.errors import ComponentError, ConfigError, ModelError
from llmfw.core.interfaces.model_adapter import ModelAdapter
from llmfw.core.plugin.one_line import one_line
from llmfw.core.plugin.registry import Entry, Registry

from .chosen_adapter import ADVICE, ChosenAdapter, model_types_of, unsupported_reason

logger = logging.getLogger(__name__)

KIND = "model_adapter"
FLAG = "--model-adapter"


def choose_adapter(setting: str, registry: Registry, hf_config: Any) -> ChosenAdapter | None:
    """Return the adapter of a model; None: the model is served as transformers has it.

    Args:
        setting: "auto" (the adapter of the largest rank that is for the model's type and supports its config), "none", or
            the name of an adapter.
        hf_config: the model's config.

    Raises:
        ConfigError: no adapter has this name, the named adapter is for other model types, or several adapters
            of the same rank are for the model's type.
        ModelError: all adapters of the model's type refuse its config.
        ComponentError: the adapter cannot be imported or built, or fails.
    """
    if setting == "none":
        return None
    if setting == "auto":
        return _find(registry, hf_config)
    entry = registry.find(KIND, setting)
    component: type[ModelAdapter] = entry.load()
    types = model_types_of(component, entry)
    if hf_config.model_type not in types:
        raise ConfigError(
            f"{entry.spoken} is for models of the types {', '.join(types)}, and this model is of the type "
            f"{hf_config.model_type}; leave out {FLAG}"
        )
    if reason := unsupported_reason(component, entry, hf_config):
        raise _refused(hf_config, entry, reason)
    return _build(component, entry)


def _find(registry: Registry, hf_config: Any) -> ChosenAdapter | None:
    """Return the adapter of the largest rank for a model; None if no adapter is for its type."""
    refusal: ModelError | None = None
    for _, group in itertools.groupby(registry.entries(KIND), key=lambda entry: entry.rank):
        found = []
        for entry in group:
            if (component := _if_for(entry, hf_config.model_type)) is None:
                continue
            if reason := unsupported_reason(component, entry, hf_config):
                refusal = refusal or _refused(hf_config, entry, reason)
                continue
            found.append((component, entry))
        if len(found) > 1:
            names = " and ".join(entry.full_name for _, entry in found)
            raise ConfigError(
                f"several model adapters are for models of the type {hf_config.model_type}: {names}; choose one by {FLAG}"
            )
        if found:
            return _build(*found[0])
    if refusal is not None:
        raise refusal
    return None


def _if_for(entry: Entry, model_type: str) -> type[ModelAdapter] | None:
    """Return an adapter's class if it is for models of a type.

    An adapter that cannot be used is skipped with a warning, because an error would keep all other models
    from being served.
    """
    if missing := entry.missing():
        logger.debug("Model adapter %s is passed over: it needs %s", entry.full_name, ", ".join(missing))
        return None
    try:
        component: type[ModelAdapter] = entry.load()
        return component if model_type in model_types_of(component, entry) else None
    except ComponentError as error:
        logger.warning("Model adapter %s is passed over: %s", entry.full_name, error)
        return None


def _build(component: type[ModelAdapter], entry: Entry) -> ChosenAdapter:
    logger.info("Model adapter: %s", entry.full_name)
    return ChosenAdapter(entry, entry.build(component))


def _refused(hf_config: Any, entry: Entry, reason: str) -> ModelError:
    return ModelError(
        f"{hf_config.model_type} cannot be served: {one_line(reason)} ({entry.spoken}); {ADVICE}"
    )
