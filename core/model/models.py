"""Loads a transformers model that uses llmfw's attention backends, and describes it as a `LoadedModel`."""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers.utils import logging as transformers_logging

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError, ModelError
from llmfw.core.interfaces.layers import LayerSpec
from llmfw.core.interfaces.state_layer import StateLayer
from llmfw.core.plugin.registry import Registry

from .adapter_choice import choose_adapter
from .checked_load import load_checked, read_config
from .chosen_adapter import ChosenAdapter
from .devices import available_memory, gigabytes, has_fast_bfloat16
from .format_choice import dequantizing, format_names
from .fuse import merge_projections
from .hf_attention import IMPLEMENTATION, register_with_transformers
from .isolation import check_cache, check_isolation
from .layer_types import check_layer_types
from .load_failure import refusing, why_not
from .long_rope import has_long_factors, take_long_factors
from .model_kind import inputs_of
from .pack import pack_linears
from .pass_choice import ChosenPass, SpoiledModelError, apply_passes, choose_passes
from .positions import check_positions
from .probe import probe
from .quantization.chosen_scheme import ChosenScheme, choose_scheme
from .quantization.quantize import QuantizedSize, check_quantizable, quantize
from .rotary_check import check_rotary
from .state_probe import find_states, state_layers
from .text_class import class_for_text
from .text_part import keep_text_part
from .weight_choice import choose_weights
from .weight_source import WeightSource

logger = logging.getLogger(__name__)

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
ORIGINAL_LIMIT_TYPES = ("dynamic", "longrope")
"""Kinds of rotary embeddings whose frequencies depend on the longest sequence of a batch if it exceeds the
original limit, unless the long factors are used for all sequences."""


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
        weights: where its weights were read from; None: they are random.
        states: layers that keep states between steps, by index.
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


def load_model(config: EngineConfig, device: torch.device, registry: Registry) -> LoadedModel:
    """Load a model, adapt it, quantize it if requested, merge projections, apply module passes, and probe it.

    Raises:
        ModelError: the model cannot be found or served; the message gives the reason.
        ConfigError: the dtype or context length does not fit the model; or a module pass, weight loader, model
            adapter or quantization scheme does not exist or cannot be used.
        ComponentError: a module pass that the config names cannot be applied, or the weight loader, the model
            adapter or the quantization scheme is faulty.
    """
    register_with_transformers()
    _quiet_transformers()
    scheme = choose_scheme(config, registry)
    weights = choose_weights(config, registry)
    hf_config = read_config(config.model, format_names(registry))
    auto_class = class_for_text(config.model, hf_config)
    text_config = hf_config.get_text_config(decoder=True)
    check_layer_types(hf_config.model_type, text_config)
    dtype = choose_dtype(config.dtype, getattr(text_config, "dtype", None), device)
    check_quantizable(scheme, hf_config, config.model, device, dtype)
    weights, hf_config = dequantizing(weights, hf_config, registry)
    context_length = choose_context_length(config.context_length, text_config, long_factors=True)
    adapter = choose_adapter(config.model_adapter, registry, hf_config)
    passes = choose_passes(config.module_passes, registry, device, dtype)
    before = available_memory(device)
    logger.info("Load weight begin. avail mem=%s", gigabytes(before))
    started = time.perf_counter()
    num_layers = _number(hf_config, text_config, "num_hidden_layers")
    vocab_size = _number(hf_config, text_config, "vocab_size")
    module, applied, size = _load_with_passes(
        partial(
            _load_merged,
            config,
            weights,
            auto_class,
            hf_config,
            dtype,
            device,
            scheme,
            adapter,
            context_length,
        ),
        passes,
        num_layers,
        vocab_size,
        scheme,
        is_auto=config.module_passes == "auto",
        may_lack_masks=adapter is not None,
    )
    with refusing(module, "laying out its weights"):
        pack_linears(module)
    logger.info(
        "Load weight end. type=%s, dtype=%s, quantization=%s, avail mem=%s, mem usage=%s, elapsed=%.2f s",
        *(type(module).__name__, dtype, config.quantization),
        *(gigabytes(available_memory(device)), gigabytes(size)),
        time.perf_counter() - started,
    )
    check_rotary(module, vocab_size, context_length)
    return LoadedModel(
        module=module,
        layers=probe(
            module,
            num_layers,
            vocab_size,
            may_lack_masks=bool(applied or adapter),
            states=state_layers(module),
        ),
        architecture=type(module).__name__,
        vocab_size=vocab_size,
        context_length=context_length,
        dtype=dtype,
        num_bytes=size,
        module_passes=tuple(each.entry.name for each in applied),
        has_own_threads=any(each.module_pass.has_own_threads for each in applied),
        weights=weights,
        states=state_layers(module),
    )


def _load_with_passes(
    load: Callable[[], tuple[nn.Module, QuantizedSize]],
    passes: list[ChosenPass],
    num_layers: int,
    vocab_size: int,
    scheme: ChosenScheme | None,
    *,
    is_auto: bool,
    may_lack_masks: bool,
) -> tuple[nn.Module, list[ChosenPass], int]:
    """Load a model, probe it, and apply module passes.

    If a pass damages the model, loads the model again and leaves out that pass.

    Args:
        load: function that returns the model before any pass, and the size of its quantized weights.
        scheme: quantization scheme of the model; None: it was not quantized.
        is_auto: whether to skip module passes that fail.
        may_lack_masks: see `probe`.

    Returns:
        The model, the passes that changed it, and the size of its weights in bytes, before any pass.

    Raises:
        ModelError, ComponentError: as in `load_model`.
    """
    while True:
        module, quantized = load()
        size = quantized.num_bytes + sum(parameter.nbytes for parameter in module.parameters())
        with nullcontext() if scheme is None else scheme.blamed():
            layers = probe(
                module, num_layers, vocab_size, may_lack_masks=may_lack_masks, states=state_layers(module)
            )
            check_positions(module)
            with refusing(module, "running it on several sequences"):
                check_isolation(module, vocab_size)
        try:
            applied = apply_passes(passes, module, layers, vocab_size, is_auto=is_auto)
            break
        except SpoiledModelError as error:
            logger.warning("Loading the model again, without module pass %s", error.chosen.entry.name)
            passes = [each.rebuilt() for each in passes if each is not error.chosen]
            del module
        gc.collect()  # frees the old weights before they are read again
    if applied:
        with refusing(module, "running it on several sequences"):
            check_isolation(module, vocab_size)
    return module, applied, size


def choose_dtype(asked: str, checkpoint: torch.dtype | str | None, device: torch.device) -> torch.dtype:
    """Return the dtype to serve a model in.

    "auto" means the dtype of the checkpoint. On a CPU, 16-bit checkpoints are served in bfloat16 if the CPU
    has bfloat16 instructions, otherwise in float32.
    """
    if asked != "auto":
        if asked not in DTYPES:
            raise ConfigError(f"dtype is {asked!r}; it must be auto or one of {', '.join(sorted(DTYPES))}")
        return DTYPES[asked]
    found = (
        DTYPES.get(checkpoint, torch.float32) if isinstance(checkpoint, str) else checkpoint or torch.float32
    )
    if device.type == "cpu" and found in (torch.float16, torch.bfloat16):
        return torch.bfloat16 if has_fast_bfloat16() else torch.float32
    return found


def choose_context_length(asked: int | None, text_config: Any, *, long_factors: bool = False) -> int:
    """Return the maximum sequence length in tokens. The default is the model's own limit.

    Args:
        asked: length that the user asks for; None: the default.
        text_config: config of the model's text part.
        long_factors: whether the model will use its long rotary factors for a length above the original one (see
            `long_rope`). If not, the original length is the limit.

    Raises:
        ConfigError: `asked` is too small or exceeds the model's limit, or the model has no limit and `asked`
            is None.
    """
    limit = getattr(text_config, "max_position_embeddings", None)
    if limit is not None and limit < 1:  # XLNet's says -1 for "any"
        limit = None
    rope = getattr(text_config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ORIGINAL_LIMIT_TYPES and not (long_factors and has_long_factors(text_config)):
        limit = rope.get("original_max_position_embeddings") or limit
    if "chunked_attention" in (getattr(text_config, "layer_types", None) or ()):
        chunk = getattr(text_config, "attention_chunk_size", None)
        limit = min(
            filter(None, (limit, chunk)), default=None
        )  # within its first chunk, a token sees all before it
    if limit is None and asked is None:
        raise ConfigError("the model's config names no longest sequence; give --context-length")
    if asked is None:
        assert limit is not None
        return int(limit)
    if asked < 2 or (limit is not None and asked > limit):
        raise ConfigError(f"--context-length is {asked}; this model can be served with 2 to {limit} tokens")
    return asked


def _number(hf_config: Any, text_config: Any, name: str) -> int:
    """Return a field of the config that must be a positive integer; otherwise raise ModelError."""
    found = getattr(text_config, name, None)
    if not isinstance(found, int) or found < 1:
        raise ModelError(f"{hf_config.model_type} cannot be served: {name} is {found} in its config")
    return found


def _load_merged(
    config: EngineConfig,
    weights: WeightSource | None,
    auto_class: Any,
    hf_config: Any,
    dtype: torch.dtype,
    device: torch.device,
    scheme: ChosenScheme | None,
    adapter: ChosenAdapter | None,
    context_length: int,
) -> tuple[nn.Module, QuantizedSize]:
    """Load a model, adapt it, keep what computes with text, quantize it if requested, and merge its projections.

    Returns:
        The model in evaluation mode, and the size of its quantized weights.
    """
    implementation = IMPLEMENTATION if adapter is None else "eager"
    module = _load_module(config, weights, auto_class, hf_config, dtype, device, implementation)
    module.eval().requires_grad_(False)
    text_config = hf_config.get_text_config(decoder=True)
    num_layers, vocab_size = (
        _number(hf_config, text_config, name) for name in ("num_hidden_layers", "vocab_size")
    )
    with refusing(module, "choosing its rotary factors"), torch.inference_mode():
        take_long_factors(module, text_config, context_length)
    if adapter is not None:
        adapter.apply(module, num_layers, vocab_size)
    check_cache(module, find_states(module, vocab_size))
    _drop_other_inputs(module)
    quantized = QuantizedSize() if scheme is None else quantize(module, scheme)
    with refusing(module, "merging its projections"):
        merge_projections(module)
    return module.eval().requires_grad_(False), quantized


def _drop_other_inputs(module: nn.Module) -> None:
    """Drop what a model needs for other inputs than text, if it has other inputs."""
    config: Any = module.config
    if not (others := [name for name in inputs_of(config) if name != "text"]):
        return
    text_config = config.get_text_config(decoder=True)
    freed = keep_text_part(module, _number(config, text_config, "vocab_size"))
    logger.info(
        "%s also reads %s; llmfw serves its text alone and frees %s of other weights",
        *(type(module).__name__, " and ".join(others), gigabytes(freed)),
    )


def _load_module(
    config: EngineConfig,
    weights: WeightSource | None,
    auto_class: Any,
    hf_config: Any,
    dtype: torch.dtype,
    device: torch.device,
    implementation: str,
) -> nn.Module:
    module: nn.Module
    options = {"dtype": dtype, "attn_implementation": implementation}
    if weights is not None:
        module, differences = load_checked(auto_class, weights, hf_config, device, **options)
        differences.refuse_any(config.model)
        return module
    try:
        torch.manual_seed(0)
        with torch.device(device):
            module = auto_class.from_config(hf_config, **options)
        return module.to(device)
    except Exception as error:
        reason = why_not(config.model, hf_config, error)
        raise ModelError(f"model {config.model!r} cannot be built: {reason}") from error


def _quiet_transformers() -> None:
    transformers_logging.set_verbosity_error()
    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
