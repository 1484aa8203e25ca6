"""Finds the plugin that reads a quantized checkpoint, by the `quant_method` of its config."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

from llmfw.core.base.errors import ConfigError
from llmfw.core.plugin.registry import Entry, Registry

from ..files.checkpoint import quantization_of
from ..weights.isolated_loader import LoaderGuard
from ..weights.weight_source import WeightSource
from .chosen_format import ChosenFormat
from .quantized_source import QuantizedSource

KIND = "quantized_format"


def format_names(registry: Registry) -> list[str]:
    """Return the values of `quant_method` that plugins read."""
    return [entry.name for entry in registry.entries(KIND)]


def dequantizing(
    source: WeightSource | None, hf_config: Any, registry: Registry
) -> tuple[WeightSource | None, Any]:
    """Return weights that are dequantized when they are read, and the config of the dequantized model.

    Returns the arguments themselves if no weights are read, if the checkpoint is not quantized, or if no
    plugin reads its format. In the last case, transformers may read the format.

    Raises:
        ConfigError: several plugins read the format.
        ModelError: the format does not support the checkpoint's settings.
        ComponentError: the component cannot be imported, or fails.
    """
    settings = settings_of(hf_config)
    entry = None if settings is None else find_format(settings, registry)
    if source is None or settings is None or entry is None:
        return source, hf_config
    guard = LoaderGuard(entry, registry.ledger.of(entry), source.path)
    make_format = partial(ChosenFormat, entry, entry.load(), settings, guard)
    make_format()  # refuses the settings before weights are read
    return QuantizedSource(source, make_format), _without_quantization(hf_config)


def settings_of(hf_config: Any) -> dict[str, Any] | None:
    """Return the `quantization_config` of a config; None if there is none."""
    found = quantization_of(hf_config)
    return found if found is None or isinstance(found, dict) else dict(found.to_dict())


def find_format(settings: Mapping[str, Any], registry: Registry) -> Entry | None:
    """Return the component that reads a format; None if there is none.

    Raises:
        ConfigError: several plugins read the format.
    """
    entries = [entry for entry in registry.entries(KIND) if entry.name == settings.get("quant_method")]
    best = [entry for entry in entries if entry.rank == entries[0].rank]
    if len(best) > 1:
        names = " and ".join(entry.full_name for entry in best)
        raise ConfigError(
            f"quantized format {best[0].name!r} is read by several plugins: {names}; uninstall all but one of them"
        )
    return best[0] if best else None


def _without_quantization(hf_config: Any) -> Any:
    """Return a copy of a config that says nothing of quantization."""
    plain = copy.deepcopy(hf_config)
    for each in (plain, plain.get_text_config(decoder=True)):
        if getattr(each, "quantization_config", None) is not None:
            del each.quantization_config
    return plain
