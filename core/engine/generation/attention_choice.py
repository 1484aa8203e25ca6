"""Which attention backend serves a model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

import torch

from llmfw.core.base.config import EngineConfig, OptionValue
from llmfw.core.base.errors import ComponentError, ConfigError
from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.model.models import LoadedModel
from llmfw.core.plugin.choice import Rejection, choose
from llmfw.core.plugin.registry import Entry, Registry

logger = logging.getLogger(__name__)


def check_attention(config: EngineConfig, registry: Registry) -> None:
    """Raise what is wrong with the choice whatever the model is: reading that may take minutes.

    Raises:
        ConfigError: there is no such backend, or it has no such option; of "auto": none that can be imported has it.
        ComponentError: the one that was named cannot be imported, or lacks something.
    """
    if config.attention != "auto":
        registry.find("attention", config.attention).build_options(config.options)
    elif any(key.startswith("attention.") for key in config.options):
        _check_options_of_any(registry.entries("attention"), config.options)


def _check_options_of_any(entries: Sequence[Entry], options: Mapping[str, OptionValue]) -> None:
    refusals = []
    for entry in entries:
        try:
            entry.build_options(options)
        except ComponentError:  # is passed over when one is chosen, with this as its reason
            continue
        except ConfigError as error:
            refusals.append(error)
        else:
            return
    if refusals:
        raise refusals[0]


def choose_attention(
    config: EngineConfig, registry: Registry, model: LoadedModel, device: torch.device, storage: KVStorage
) -> tuple[str, AttentionBackend]:
    """Return the attention backend, and its name: the one asked for, or the best that can serve the model.

    Raises:
        ComponentError: it cannot serve the model, or none can; with the reasons.
    """
    choice = choose(registry, "attention", config.attention)
    reasons: list[str] = []
    for entry in choice.entries:
        found = choice.attempt(entry, partial(_build, entry, config, model, device, storage))
        if not isinstance(found, Rejection):
            passed_over = f" ({'; '.join(reasons)})" if reasons else ""
            logger.info("Attention backend: %s%s", entry.name, passed_over)
            return entry.name, found
        reasons.append(f"{entry.name}: {found.reason}")
    listed = "; ".join(reasons) or "no plugin brings one"
    if config.kv_cache_dtype != "auto":
        listed += f" (--kv-cache-dtype is {config.kv_cache_dtype})"
    raise ComponentError(f"no attention backend can serve {model.architecture} on {device}: {listed}")


def _build(
    entry: Entry,
    config: EngineConfig,
    model: LoadedModel,
    device: torch.device,
    storage: KVStorage,
    backend: type[AttentionBackend],
) -> AttentionBackend | str:
    """Return an attention backend of a class, or the reason why the class cannot serve the model.

    Raises:
        ConfigError: it has no such option.
        ComponentError: it cannot be built, as when its kernels do not load.
    """
    reason = backend.unsupported(model.layers, str(device), model.dtype)
    if reason is None and storage.stored_as != model.dtype:
        reason = backend.storage_unsupported(str(device), model.dtype, storage.stored_as)
    if reason is not None:
        return reason
    return entry.build(backend, model.layers, storage, entry.build_options(config.options))
