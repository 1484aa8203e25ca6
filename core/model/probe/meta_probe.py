"""Measures the layers of a model that has no weights, on torch's meta device.

`llmfw plan` learns this way what a model with states stores. It needs no formula for each architecture, and the
memory of a single module at most.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import AttentionInterface

from llmfw.core.interfaces.layers import LayerSpec
from llmfw.core.interfaces.state_layer import StateLayer

from ..attention.hf_attention import attend
from ..failure.refusal import refused, refusing
from ..states.module_mixer import RunningStep
from ..states.state_mixer import StateCall, StateMixer
from ..trial.packed import run_packed
from .state_check import LENGTHS, PieceTrial
from .state_probe import StateRecorder, install_mixers

WITHOUT_MASKS = "llmfw_meta"
"""Attention implementation that has no masks, because transformers' code for masks reads values of tensors."""
SPREAD = 0.2
"""Standard deviation of the random vectors of a module that is tried. That of matrices follows from their width."""
ROUGH_TOLERANCE = 1e-3
"""Maximum difference, relative to the largest output, of a module that continues from its state."""


@dataclass(frozen=True, slots=True)
class MetaLayers:
    """The layers of a model without weights.

    Attributes:
        attention: sizes of the attention layers, by index; scales and windows are not measured.
        states: layers that keep states.
        takes_pieces: whether all modules with states continue a sequence with several tokens at once.
    """

    attention: list[LayerSpec]
    states: list[StateLayer]
    takes_pieces: bool


def build_on_meta(auto_class: Any, hf_config: Any, dtype: torch.dtype) -> Any:
    """Return a model without memory for its weights, whose layers `measure_layers` can run.

    Args:
        auto_class: class of transformers that builds the model, such as `AutoModelForCausalLM`.
        hf_config: the model's config.
        dtype: dtype of the weights.
    """
    AttentionInterface.register(WITHOUT_MASKS, attend)
    with torch.device("meta"):
        model: Any = auto_class.from_config(hf_config, dtype=dtype, attn_implementation=WITHOUT_MASKS)
    if model._can_set_experts_implementation():  # others read on the host how many tokens each expert has
        model.set_experts_implementation("batched_mm")
    return model.eval()


def measure_layers(model: Any, *, try_pieces: bool = True) -> MetaLayers:
    """Run a model of `build_on_meta` on a few tokens; return what its layers store.

    Args:
        try_pieces: whether to try if modules with states continue a sequence with several tokens at once. One
            module of each kind gets random weights on the CPU for it. If not, it is assumed.

    Raises:
        ModelError: the model cannot be run, or it has no layers with states, or one of them stored none.
    """
    installed = install_mixers(model)
    recorder = _MetaRecorder()
    with refusing(model, "running it without weights"):
        run_packed(model, [[0] * size for size in LENGTHS], recorder)
    layers = [mixer.layer for _, mixer in installed]
    if not layers or not all(layer.states for layer in layers):
        raise refused(model, "its layers store no states when it runs on a few tokens without weights")
    kinds = {(type(module), mixer.layer.states): (module, mixer) for module, mixer in installed}
    with refusing(model, "running one of its layers on pieces of sequences"):
        tried = kinds.values() if try_pieces else ()
        config = model.config.get_text_config(decoder=True)
        takes = [_takes_pieces(module, recorder.calls[mixer.layer.index], config) for module, mixer in tried]
    attention = [recorder.specs[index] for index in sorted(recorder.specs)]
    return MetaLayers(attention, layers, all(takes))


class _MetaRecorder(StateRecorder):
    """Records the sizes of attention layers in addition."""

    def __init__(self) -> None:
        super().__init__()
        self.specs: dict[int, LayerSpec] = {}

    def attend(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs: object,
    ) -> torch.Tensor:
        index = module.layer_idx
        assert isinstance(index, int)
        self.specs[index] = LayerSpec(
            index=index,
            num_heads=query.shape[1],
            num_kv_heads=key.shape[1],
            head_dim=query.shape[3],
            v_head_dim=value.shape[3],
            scale=1.0,
        )
        return super().attend(module, query, key, value, attention_mask, **kwargs)


def _takes_pieces(meta: nn.Module, call: StateCall, config: Any) -> bool:
    """Return whether a module with states continues a sequence with several tokens at once.

    Tries a module of the same kind with random weights on the CPU.

    Args:
        meta: the module on the meta device.
        call: a call of it.
        config: config of the model's text part.
    """
    generator = torch.Generator().manual_seed(0)
    module = _built_on_cpu(meta, config)
    with torch.no_grad():
        for parameter in module.parameters():
            fan_in = math.prod(parameter.shape[1:])
            parameter.normal_(0, fan_in**-0.5 if parameter.dim() > 1 else SPREAD, generator=generator)
    trial = PieceTrial(module, StateCall(_mixer(module, call), _on_cpu(call.arguments, generator)))
    return trial.piece_difference(takes_pieces=True) <= ROUGH_TOLERANCE


def _built_on_cpu(meta: nn.Module, config: Any) -> nn.Module:
    """Return a module in float32 of the same kind as one on the meta device.

    It is built anew, if it is built from a config and its layer, as transformers' modules are. So its buffers have
    the values that belong to each other. Otherwise they are 0.
    """
    if {"config", "layer_idx"} == set(inspect.signature(type(meta)).parameters):
        with torch.device("cpu"):
            module: nn.Module = type(meta)(config, meta.layer_idx)
        return module.float()
    module = copy.deepcopy(meta).float().to_empty(device="cpu")
    for buffer in module.buffers():
        buffer.zero_()
    return module


def _mixer(module: nn.Module, call: StateCall) -> StateMixer:
    """Make a module keep its states as that of another call does."""
    module.forward = StateMixer(module, call.mixer.cache_name, RunningStep(), call.mixer.layer)
    return module.forward


def _on_cpu(given: Any, generator: torch.Generator) -> Any:
    """Return arguments of a call with random tensors on the CPU in place of those on the meta device."""
    if isinstance(given, torch.Tensor):
        found = torch.zeros(given.shape, dtype=given.dtype)
        return found.normal_(generator=generator) if given.is_floating_point() else found
    if isinstance(given, tuple):
        return tuple(_on_cpu(each, generator) for each in given)
    if isinstance(given, Mapping):
        return {name: _on_cpu(each, generator) for name, each in given.items()}
    return given
