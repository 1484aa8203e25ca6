"""Loads a transformers model that uses llmfw's attention backends, and describes it as a `LoadedModel`."""

from __future__ import annotations

import gc
import logging
import time
from dataclasses import dataclass

import torch
from torch import nn

from llmfw.core.base.config import EngineConfig
from llmfw.core.interfaces.layers import LayerSpec
from llmfw.core.interfaces.state_layer import StateLayer
from llmfw.core.plugin.registry import Registry

from .adapters.adapter_room import AdapterRoom
from .adapters.adapter_slots import AdapterSlots
from .attention.hf_attention import register_with_transformers
from .changes.pack import pack_linears
from .changes.pass_choice import ChosenPass, SpoiledModelError, apply_passes, choose_passes
from .config.context_length import within_table
from .decoder import DecoderLoading, load_decoder
from .device.devices import available_memory, gigabytes
from .failure.refusal import refusing
from .images.image_encoder import ImageEncoder
from .loading import log_loaded, quiet_transformers, weight_bytes
from .parallel.rank_group import RankGroup
from .parallel.tensor_parallel import TensorParallel
from .probe.isolation import check_isolation
from .probe.own_positions import own_positions
from .probe.positions import check_positions
from .probe.probe import probe
from .probe.rotary_check import check_rotary
from .probe.state_probe import state_layers
from .weights.weight_source import WeightSource

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that can be served.

    Attributes:
        module: transformers' module, in evaluation mode, on its device.
        layers: attention layers, by index.
        architecture: name of the module's class.
        vocab_size: width of the logits.
        context_length: maximum length of a sequence in tokens.
        dtype: dtype of weights, and of keys and values before they are stored.
        num_bytes: size of the weights in bytes.
        module_passes: names of the module passes that changed the model, in the order of their application.
        has_own_threads: whether the model computes on threads other than torch's (see `ModulePass`).
        weights: source of the weights; None: the weights are random.
        states: layers that keep states between steps, by index.
        adapters: room for adapters; None: there is none.
        images: its parts that read images; None: it is served without them.
        uncounted_token: id of a token that takes no position; None: there is none.
    """

    module: nn.Module
    layers: list[LayerSpec]
    architecture: str
    vocab_size: int
    context_length: int
    dtype: torch.dtype
    num_bytes: int
    module_passes: tuple[str, ...] = ()
    has_own_threads: bool = False
    weights: WeightSource | None = None
    states: tuple[StateLayer, ...] = ()
    adapters: AdapterSlots | None = None
    images: ImageEncoder | None = None
    uncounted_token: int | None = None


def load_model(
    config: EngineConfig, device: torch.device, registry: Registry, group: RankGroup | None = None
) -> LoadedModel:
    """Load a model, adapt it, quantize it if requested, merge projections, apply module passes, and probe it.

    Args:
        group: ranks among which the model is divided, all of which call this at once; None: the model is not divided.

    Raises:
        ModelError: the model cannot be found or served; the message gives the reason.
        ConfigError: the dtype or context length does not fit the model; or a module pass, weight loader, model
            adapter or quantization scheme does not exist or cannot be used.
        ComponentError: a module pass that the config names cannot be applied, or the weight loader, the model
            adapter or the quantization scheme is faulty.
    """
    register_with_transformers()
    quiet_transformers()
    decoder = DecoderLoading.of(config, device, registry, None if group is None else TensorParallel(group))
    dtype = decoder.loading.dtype
    passes = [] if group is not None else choose_passes(config.module_passes, registry, device, dtype)
    room = AdapterRoom.of(config)
    logger.info("Load weight begin. avail mem=%s", gigabytes(available_memory(device)))
    started = time.perf_counter()
    built = _load_with_passes(decoder, passes, room, is_auto=config.module_passes == "auto")
    module, applied, size = built.module, built.applied, built.num_bytes
    with refusing(module, "laying out its weights"):
        pack_linears(module)
    log_loaded(decoder.loading, module, size, started)
    own = own_positions(module)
    context_length = decoder.context_length
    if own is not None:
        context_length = within_table(config.context_length, context_length, own.num_positions)
    check_rotary(module, decoder.vocab_size, context_length)
    return LoadedModel(
        module=module,
        layers=_probe(module, decoder, may_lack_masks=bool(applied or decoder.adapter)),
        architecture=type(module).__name__,
        vocab_size=decoder.vocab_size,
        context_length=context_length,
        dtype=dtype,
        num_bytes=size,
        module_passes=tuple(each.entry.name for each in applied),
        has_own_threads=any(each.module_pass.has_own_threads for each in applied),
        weights=decoder.loading.weights,
        states=state_layers(module),
        adapters=built.adapters,
        images=built.images,
        uncounted_token=None if own is None else own.uncounted_token,
    )


@dataclass(frozen=True, slots=True)
class _Built:
    """A model after its module passes.

    Attributes:
        module: the model.
        applied: the passes that changed it.
        num_bytes: size of its weights in bytes, before any pass.
        adapters: its room for adapters; None: there is none.
        images: its parts that read images; None: it is served without them.
    """

    module: nn.Module
    applied: list[ChosenPass]
    num_bytes: int
    adapters: AdapterSlots | None
    images: ImageEncoder | None


def _load_with_passes(
    decoder: DecoderLoading, passes: list[ChosenPass], room: AdapterRoom | None, *, is_auto: bool
) -> _Built:
    """Load a model, probe it, make room for adapters, and apply module passes.

    If a pass damages the model, loads the model again and leaves out that pass.

    Args:
        room: room for adapters; None: there is none.
        is_auto: whether to skip module passes that fail.

    Raises:
        ModelError, ComponentError: as in `load_model`.
    """
    while True:
        module, quantized, images = load_decoder(decoder)
        size = weight_bytes(module, quantized) + (images.num_bytes if images else 0)
        layers = _probe_unchanged(module, decoder)
        adapters = None
        if room is not None:
            with refusing(module, "making room for adapters"):
                adapters = room.add_to(module, decoder.vocab_size, decoder.loading.dtype)
        try:
            applied = apply_passes(passes, module, layers, decoder.vocab_size, is_auto=is_auto)
            break
        except SpoiledModelError as error:
            logger.warning("Loading the model again, without module pass %s", error.chosen.entry.name)
            passes = [each.rebuilt() for each in passes if each is not error.chosen]
            del module, adapters, images
        gc.collect()  # frees the old weights before they are read again
    if applied:
        _check_isolation(module, decoder)
    if adapters is not None:
        adapters.check_calls(module, decoder.vocab_size)
        if unused := [each.entry.name for each in passes if each not in applied]:
            logger.info(
                "Module passes that leave layers with adapters as they are, which costs speed: %s",
                ", ".join(unused),
            )
    return _Built(module, applied, size, adapters, images)


def _probe_unchanged(module: nn.Module, decoder: DecoderLoading) -> list[LayerSpec]:
    """Check a model that no pass has changed; return its attention layers.

    Raises:
        ModelError: the model cannot be served.
        ComponentError: a module of the quantization scheme has failed.
    """
    with decoder.loading.blaming_scheme():
        layers = _probe(module, decoder, may_lack_masks=decoder.adapter is not None)
        check_positions(module)
        _check_isolation(module, decoder)
    return layers


def _probe(module: nn.Module, decoder: DecoderLoading, *, may_lack_masks: bool) -> list[LayerSpec]:
    return probe(
        module,
        decoder.num_layers,
        decoder.vocab_size,
        may_lack_masks=may_lack_masks,
        states=state_layers(module),
    )


def _check_isolation(module: nn.Module, decoder: DecoderLoading) -> None:
    with refusing(module, "running it on several sequences"):
        check_isolation(module, decoder.vocab_size)
