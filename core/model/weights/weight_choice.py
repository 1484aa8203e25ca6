"""Chooses the reader of a model's weights: `--weight-loader`."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError, ConfigError, ModelError
from llmfw.core.interfaces.weight_loader import WeightLoader
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.option_keys import refuse_options_of_others
from llmfw.core.plugin.registry import Entry, Registry

from .isolated_loader import LoaderGuard, recognizes
from .loader_source import LoaderSource
from .transformers_source import TransformersSource
from .weight_source import WeightSource

logger = logging.getLogger(__name__)

KIND = "weight_loader"
FLAG = "--weight-loader"


def choose_weights(config: EngineConfig, registry: Registry) -> WeightSource | None:
    """Return the source of the weights of the config's model; None: the weights are drawn at random.

    With "auto", each loader, by descending rank, is asked whether the folder has its format. If no loader
    recognizes the folder, or the model is a hub id, transformers reads the files itself.

    Raises:
        ConfigError: there is no such loader, the folder does not have its format, an option is wrong, or several
            loaders of the same rank recognize the folder.
        ModelError: a loader that reads folders is named for a hub id.
        ComponentError: the named loader cannot be imported, or fails.
    """
    if config.load_format == "dummy":
        _refuse_loaders(config)
        return None
    is_auto = config.weight_loader == "auto"
    entry = _recognizing(config, registry) if is_auto else registry.find(KIND, config.weight_loader)
    _refuse_other_options(config, entry)
    if entry is None:
        return TransformersSource(config.model)
    source = _source_of(entry, config, registry)
    if isinstance(source, LoaderSource):
        logger.info("Weight loader: %s", entry.full_name)
    return source


def _source_of(entry: Entry, config: EngineConfig, registry: Registry) -> WeightSource:
    """Return the weights that a loader reads, or lists for transformers.

    Raises:
        ConfigError, ModelError, ComponentError: as in `choose_weights`.
    """
    component: type[WeightLoader] = entry.load()
    options = entry.build_options(config.options)
    guard = LoaderGuard(entry, registry.ledger.of(entry), config.model)
    file_format = component.transformers_format
    if not Path(config.model).is_dir():
        if file_format is not None:
            return TransformersSource(config.model, file_format)
        raise ModelError(
            f"model {config.model!r} is not a folder, and {entry.spoken} reads folders: download it (hf download "
            f"{config.model} --local-dir DIR), and give the folder"
        )
    if config.weight_loader != "auto" and not recognizes(component, guard):
        raise ConfigError(
            f"model {config.model!r} has no weights in the format of {entry.spoken}; leave out {FLAG} to have the format "
            "found, or give another folder"
        )
    source = LoaderSource(component, options, guard)
    return source if file_format is None else TransformersSource(config.model, file_format, source.stored)


def _recognizing(config: EngineConfig, registry: Registry) -> Entry | None:
    """Return the loader of largest rank that recognizes the model's folder; None if there is none.

    A loader that cannot be used is skipped with a warning, because an error would keep all other models from
    being served.

    Raises:
        ConfigError: several loaders of the same rank recognize the folder.
    """
    if not Path(config.model).is_dir():
        return None
    for _, group in itertools.groupby(registry.entries(KIND), key=lambda entry: entry.rank):
        found = [entry for entry in group if _is_usable(entry, config.model)]
        if len(found) > 1:
            names = " and ".join(entry.full_name for entry in found)
            raise ConfigError(
                f"model {config.model!r} has weights of several weight loaders: {names}; choose one by {FLAG}, or remove the "
                "files of the others"
            )
        if found:
            return found[0]
    return None


def _is_usable(entry: Entry, folder: str) -> bool:
    if missing := entry.missing():
        logger.debug("Weight loader %s is passed over: it needs %s", entry.full_name, ", ".join(missing))
        return False
    try:
        # Not recorded in the registry's ledger, which lists the components in use.
        return recognizes(entry.load(), LoaderGuard(entry, ComponentCalls(entry), folder))
    except (ComponentError, ModelError) as error:
        logger.warning("Weight loader %s is passed over: %s", entry.full_name, error)
        return False


def _refuse_loaders(config: EngineConfig) -> None:
    """Raise ConfigError if a loader is named, or options are given for one, although no weights are read."""
    if config.weight_loader != "auto":
        raise ConfigError(
            f"{FLAG} is {config.weight_loader}, but --load-format dummy reads no weights; leave out one of them"
        )
    _refuse_other_options(config, None)


def _refuse_other_options(config: EngineConfig, entry: Entry | None) -> None:
    names = () if entry is None else (entry.name, entry.full_name)
    refuse_options_of_others(KIND, names, config.options, f"{FLAG} NAME")
