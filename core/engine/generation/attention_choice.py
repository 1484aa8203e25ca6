"""Chooses the attention backend that serves a model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

import torch

from llmfw.core.base.config import EngineConfig, OptionValue
from llmfw.core.base.errors import ComponentError, ConfigError
from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.kv_dtype import choose_kv_dtype
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.model.models import LoadedModel
from llmfw.core.plugin.choice import Rejection, choose
from llmfw.core.plugin.defaults import name_of
from llmfw.core.plugin.registry import Entry, Registry

from .memory_plan import StepSizes, graph_sizes

logger = logging.getLogger(__name__)


def check_attention(config: EngineConfig, registry: Registry) -> None:
    """Check `--attention` and its options before the model is loaded, which may take minutes.

    Raises:
        ConfigError: the named backend or an option does not exist. With "auto": every backend that can
            be imported lacks an option.
        ComponentError: the named backend cannot be imported, or lacks a requirement.
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
        except ComponentError:  # `choose_attention` skips this backend, and reports the error as the reason
            continue
        except ConfigError as error:
            refusals.append(error)
        else:
            return
    if refusals:
        raise ConfigError("; ".join(str(each) for each in refusals))


def choose_attention(
    config: EngineConfig, registry: Registry, model: LoadedModel, device: torch.device, storage: KVStorage
) -> tuple[str, AttentionBackend]:
    """Return the name of an attention backend, and the backend: the requested one, or the best that can serve
    the model.

    Raises:
        ComponentError: the requested backend cannot serve the model, or none can; the message gives the
            reasons.
    """
    choice = choose(registry, "attention", config.attention, device.type)
    reasons: list[str] = []
    elsewhere: list[str] = []
    for entry in choice.entries:
        found = choice.attempt(entry, partial(_build, entry, config, model, device, storage))
        if not isinstance(found, Rejection):
            passed_over = f" ({'; '.join(reasons)})" if reasons else ""
            logger.info("Attention backend: %s%s", entry.name, passed_over)
            if elsewhere:
                logger.debug(
                    "Attention backends for other devices than %s: %s", device.type, ", ".join(elsewhere)
                )
            return name_of(registry, entry), found
        if found.is_for_other_device:
            elsewhere.append(f"{entry.name} ({found.reason})")
        else:
            reasons.append(f"{entry.name}: {found.reason}")
    listed = "; ".join(reasons + elsewhere) or "no plugin brings one"
    if config.kv_cache_dtype != "auto":
        listed += f" (--kv-cache-dtype is {config.kv_cache_dtype})"
    raise ComponentError(f"no attention backend can serve {model.architecture} on {device}: {listed}")


def attention_bytes(
    config: EngineConfig,
    registry: Registry,
    model: LoadedModel,
    device: torch.device,
    steps: StepSizes,
    num_pages: int,
) -> int:
    """Return the memory that the attention backend will take on the device for steps, in bytes.

    Asks the backend that `choose_attention` tries first, of those that support the model; 0 if none does.

    Args:
        steps: sizes of the largest steps.
        num_pages: maximum number of pages of a sequence.

    Raises:
        ConfigError: an option does not exist.
    """
    choice = choose(registry, "attention", config.attention, device.type)

    def ask(entry: Entry, backend: type[AttentionBackend]) -> int | str:
        stored_as = choose_kv_dtype(config.kv_cache_dtype, model.dtype)
        if reason := _unsupported(backend, model, device, stored_as):
            return reason
        found: object = backend.step_bytes(
            model.layers,
            entry.build_options(config.options),
            str(device),
            num_sequences=steps.max_running,
            num_pages=num_pages,
            graph_sizes=graph_sizes(steps.max_graph_size),
        )
        if not isinstance(found, int) or found < 0:
            raise ComponentError(
                f"{entry} failed: step_bytes() returned {found!r}; it must be a number of bytes"
            )
        return found

    for entry in choice.entries:
        found = choice.attempt(entry, partial(ask, entry))
        if not isinstance(found, Rejection):
            return found
    return 0


def _unsupported(
    backend: type[AttentionBackend], model: LoadedModel, device: torch.device, stored_as: torch.dtype
) -> str | None:
    """Return the reason why a class of backends cannot serve the model; None if it can."""
    reason = backend.unsupported(model.layers, str(device), model.dtype)
    if reason is None and stored_as != model.dtype:
        reason = backend.storage_unsupported(str(device), model.dtype, stored_as)
    return reason


def _build(
    entry: Entry,
    config: EngineConfig,
    model: LoadedModel,
    device: torch.device,
    storage: KVStorage,
    backend: type[AttentionBackend],
) -> AttentionBackend | str:
    """Build an attention backend of a class and return it, or return the reason why the class cannot serve
    the model.

    Raises:
        ConfigError: an option does not exist.
        ComponentError: the backend cannot be built, for example because its kernels do not load.
    """
    if reason := _unsupported(backend, model, device, storage.stored_as):
        return reason
    return entry.build(backend, model.layers, storage, entry.build_options(config.options))
