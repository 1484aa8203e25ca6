"""Chooses the attention backends that serve a model: one for single tokens, and one for prompts, often the same."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError, ConfigError
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.kv_dtype import choose_kv_dtype
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.model.attention.split_attention import SplitAttention
from llmfw.core.model.models import LoadedModel
from llmfw.core.plugin.choice import Rejection
from llmfw.core.plugin.defaults import name_of
from llmfw.core.plugin.option_keys import options_of
from llmfw.core.plugin.registry import Entry, Registry

from .attention_search import KIND, AttentionSearch, Part, own_options
from .chosen_attention import ChosenAttention
from .memory_plan import StepSizes, graph_sizes

logger = logging.getLogger(__name__)


def check_attention(config: EngineConfig, registry: Registry) -> None:
    """Check `--attention`, `--prefill-attention` and their options before the model is loaded, which may take
    minutes.

    Raises:
        ConfigError: a named backend or an option does not exist. With "auto": every backend that can be
            imported lacks an option.
        ComponentError: a named backend cannot be imported, or lacks a requirement.
    """
    settings = (config.attention, config.prefill_attention)
    named = [registry.find(KIND, name) for name in dict.fromkeys(settings) if name not in (None, "auto")]
    for entry in named:
        entry.build_options(
            own_options(entry, registry.entries(KIND) if "auto" in settings else named, config.options)
        )
    if not named and options_of(KIND, (), config.options):
        _check_options_of_any(registry.entries(KIND), config.options)


def _check_options_of_any(entries: Sequence[Entry], options: Mapping[str, OptionValue]) -> None:
    """Raise ConfigError if no backend accepts these options, apart from options of other backends."""
    refusals = []
    for entry in entries:
        try:
            entry.build_options(own_options(entry, entries, options))
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
) -> ChosenAttention:
    """Build the requested attention backends, or the best that can serve the model.

    Raises:
        ConfigError: an option does not exist.
        ComponentError: a requested backend cannot serve the model, or none can; the message gives the reasons.
    """

    def build(
        entry: Entry, part: Part | None, options: AttentionBackend.Options, backend: type[AttentionBackend]
    ) -> AttentionBackend:
        made = backend if part is None else partial(backend.for_part, part)
        return entry.build(made, model.layers, storage, options)

    unsupported = partial(_unsupported, model, device, storage.stored_as)
    search = AttentionSearch[AttentionBackend](config, registry, device.type, unsupported, build)
    found = search.find()
    reasons, elsewhere = _listed(search.rejections)
    if found is None:
        raise _none_can_serve(config, model, device, reasons + elsewhere)
    name, backend, ahead = name_of(registry, found.decode), found.results[0], None
    if found.prefill != found.decode:
        name += f", prompts: {name_of(registry, found.prefill)}"
        backend = SplitAttention(*found.results)
    if model.images is not None and model.images.looks_ahead and not found.results[-1].looks_ahead:
        ahead, with_images = _that_looks_ahead(registry, model, device, storage)
        name += f", images: {name_of(registry, ahead)}"
        backend = SplitAttention(found.results[0], found.results[-1], with_images)
    logger.info("Attention backend: %s%s", name, f" ({'; '.join(reasons)})" if reasons else "")
    if elsewhere:
        logger.debug("Attention backends for other devices than %s: %s", device.type, ", ".join(elsewhere))
    return ChosenAttention(name, backend, found.decode, found.prefill, ahead)


def _that_looks_ahead(
    registry: Registry, model: LoadedModel, device: torch.device, storage: KVStorage
) -> tuple[Entry, AttentionBackend]:
    """Return the best backend that looks ahead, with its default options.

    Raises:
        ComponentError: there is none that can serve the model.
    """
    for entry in registry.entries(KIND):
        try:
            backend: type[AttentionBackend] = entry.load()
        except ComponentError:  # it lacks a package
            continue
        if backend.looks_ahead and _unsupported(model, device, storage.stored_as, backend) is None:
            made = partial(backend.for_part, "prefill")
            return entry, entry.build(made, model.layers, storage, entry.build_options({}))
    raise ComponentError(
        f"no attention backend can serve images of {model.architecture}, whose tokens attend to each other in both "
        "directions; --image-cache-mb 0 serves its text alone"
    )


def attention_bytes(
    config: EngineConfig,
    registry: Registry,
    model: LoadedModel,
    device: torch.device,
    steps: StepSizes,
    num_pages: int,
) -> int:
    """Return the device memory in bytes that the attention backends will need for steps.

    Asks the backends that support the model and that `choose_attention` tries first. Returns 0 if no backend
    supports the model.

    Args:
        steps: sizes of the largest steps.
        num_pages: maximum number of pages of a sequence.

    Raises:
        ConfigError: an option does not exist.
    """

    def ask(
        entry: Entry, part: Part | None, options: AttentionBackend.Options, backend: type[AttentionBackend]
    ) -> int:
        found: object = backend.step_bytes(
            model.layers,
            options,
            str(device),
            num_sequences=steps.max_running,
            num_pages=num_pages,
            # Graphs have no prompts.
            graph_sizes=() if part == "prefill" else graph_sizes(steps.max_graph_size),
        )
        if not isinstance(found, int) or found < 0:
            raise ComponentError(
                f"{entry} failed: step_bytes() returned {found!r}; it must be a number of bytes"
            )
        return found

    unsupported = partial(_unsupported, model, device, choose_kv_dtype(config.kv_cache_dtype, model.dtype))
    found = AttentionSearch[int](config, registry, device.type, unsupported, ask).find()
    return 0 if found is None else sum(found.results)


def _unsupported(
    model: LoadedModel, device: torch.device, stored_as: torch.dtype, backend: type[AttentionBackend]
) -> str | None:
    """Return the reason why a class of backends cannot serve the model; None if it can."""
    if not backend.heeds_selection and any(layer.selects for layer in model.layers):
        return "it attends to all tokens, and layers of this model select some"
    reason = backend.unsupported(model.layers, str(device), model.dtype)
    if reason is None and stored_as != model.dtype:
        reason = backend.storage_unsupported(str(device), model.dtype, stored_as)
    return reason


def _listed(rejections: Mapping[Entry, Rejection]) -> tuple[list[str], list[str]]:
    """Return the reasons why backends cannot be used, and which backends are for other devices."""
    here = {entry: each for entry, each in rejections.items() if not each.is_for_other_device}
    return (
        [f"{entry.name}: {each.reason}" for entry, each in here.items()],
        [f"{entry.name} ({each.reason})" for entry, each in rejections.items() if entry not in here],
    )


def _none_can_serve(
    config: EngineConfig, model: LoadedModel, device: torch.device, reasons: Sequence[str]
) -> ComponentError:
    listed = "; ".join(reasons) or "no plugin brings one"
    if config.kv_cache_dtype != "auto":
        listed += f" (--kv-cache-dtype is {config.kv_cache_dtype})"
    return ComponentError(f"no attention backend can serve {model.architecture} on {device}: {listed}")
