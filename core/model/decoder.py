"""Loads a decoder of text, and turns it into the model that llmfw serves, before any module pass.

The model is adapted to llmfw's attention, reduced to the modules that compute with text, quantized if
requested, and its projections are merged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ModelError
from llmfw.core.plugin.registry import Registry

from .attention.hf_attention import IMPLEMENTATION
from .attention.shared_layers import follow_layers
from .changes.adapter_choice import choose_adapter
from .changes.chosen_adapter import ChosenAdapter
from .changes.fuse import merge_projections
from .config.context_length import choose_context_length
from .config.layer_count import layer_count_name
from .config.layer_types import check_layer_types
from .config.long_rope import take_long_factors
from .config.text_class import class_for_text
from .failure.refusal import refused, refusing
from .images.image_choice import take_images
from .images.image_encoder import ImageEncoder
from .loading import Loading, load_module
from .parallel.tensor_parallel import TensorParallel, check_dividable
from .probe.index_probe import find_indexers
from .probe.isolation import check_cache
from .probe.own_positions import keep_own_positions
from .probe.state_probe import find_states
from .quantization.chosen_scheme import choose_scheme
from .quantization.quantize import QuantizedSize


@dataclass(frozen=True, slots=True)
class DecoderLoading:
    """How a decoder is loaded and served. Decided before any weights are read.

    Attributes:
        loading: the plan for loading the checkpoint.
        adapter: adapter that makes the model use llmfw's attention; None: transformers' own code does so.
        num_layers: number of layers in the model's config.
        vocab_size: width of the logits.
        context_length: maximum length of a sequence in tokens.
        config: settings of the engine.
        registry: registry of the components that the settings name.
        parallel: this rank's part in loading, with `--tp`; None: there is one rank.
    """

    loading: Loading
    adapter: ChosenAdapter | None
    num_layers: int
    vocab_size: int
    context_length: int
    config: EngineConfig
    registry: Registry
    parallel: TensorParallel | None = None

    @classmethod
    def of(
        cls,
        config: EngineConfig,
        device: torch.device,
        registry: Registry,
        parallel: TensorParallel | None = None,
    ) -> DecoderLoading:
        """Decide how to load the config's model. Reads the model's config, and no weights.

        Args:
            parallel: this rank's part in loading; None: there is one rank.

        Raises:
            ModelError: the model has no usable config, or cannot be served.
            ConfigError: the dtype, context length, load format, weight loader, model adapter or quantization scheme
                does not fit the model.
            ComponentError: the weight loader, the model adapter or the quantization scheme is faulty.
        """
        scheme = choose_scheme(config, registry)
        loading = Loading.of(config, device, registry, scheme, partial(_class_for, config.model))
        hf_config = loading.hf_config
        text_config = hf_config.get_text_config(decoder=True)
        context_length = choose_context_length(config.context_length, text_config, long_factors=True)
        adapter = choose_adapter(config.model_adapter, registry, hf_config)
        names = layer_count_name(text_config), "vocab_size"
        num_layers, vocab_size = (_number(hf_config, name) for name in names)
        if parallel is not None:
            check_dividable(hf_config, config.model, parallel.group.size, adapter)
            loading = replace(loading, weights=parallel.sharded(loading.weights))
        return cls(loading, adapter, num_layers, vocab_size, context_length, config, registry, parallel)


def load_decoder(decoder: DecoderLoading) -> tuple[nn.Module, QuantizedSize, ImageEncoder | None]:
    """Load a decoder, adapt it, keep its text modules, quantize it if requested, and merge its projections.

    Returns:
        The model in evaluation mode, the size of its quantized weights, and the encoder of images (None if
        the model is served without images).

    Raises:
        ModelError: the model cannot be loaded or served.
        ComponentError: the weight loader, the model adapter or the quantization scheme is faulty.
    """
    loading = decoder.loading
    module, differences = load_module(
        loading, attn_implementation=IMPLEMENTATION if decoder.adapter is None else "eager"
    )
    differences.refuse_any(loading.model)
    if decoder.parallel is not None:
        decoder.parallel.connect(module)
    with refusing(module, "choosing its rotary factors"), torch.inference_mode():
        take_long_factors(module, loading.hf_config.get_text_config(decoder=True), decoder.context_length)
    follow_layers(module)
    if decoder.adapter is not None:
        decoder.adapter.apply(module, decoder.num_layers, decoder.vocab_size)
    sizes = find_indexers(module, decoder.vocab_size)
    states = find_states(module, decoder.vocab_size)
    check_cache(module, states, sizes)
    keep_own_positions(module)
    if states and decoder.parallel is not None:
        raise refused(module, "its layers keep states, which are not divided among ranks; leave out --tp")
    images = take_images(module, decoder.config, decoder.registry, decoder.vocab_size)
    quantized = loading.quantize(module)
    with refusing(module, "merging its projections"):
        merge_projections(module)
    return module.eval().requires_grad_(False), quantized, images


def _class_for(model: str, hf_config: Any) -> Any:
    """Return transformers' class for a model; raise ModelError if llmfw serves no such models or layers."""
    auto_class = class_for_text(model, hf_config)
    check_layer_types(hf_config.model_type, hf_config.get_text_config(decoder=True))
    return auto_class


def _number(hf_config: Any, name: str) -> int:
    """Return a field of the text's config that must be a positive integer; otherwise raise ModelError."""
    found = getattr(hf_config.get_text_config(decoder=True), name, None)
    if not isinstance(found, int) or found < 1:
        raise ModelError(f"{hf_config.model_type} cannot be served: {name} is {found} in its config")
    return found
