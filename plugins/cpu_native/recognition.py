"""Recognizes decoders that native code can replace.

Every module of the decoder must be transformers' own, of the expected class, with the expected submodules and
without hooks. Later, layers.py compares each layer with its native replacement on random input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.activations import SiLUActivation

from llmfw.core.model.changes.fuse import MergedPart
from llmfw.core.model.quantization.modules import QuantizedEmbedding, QuantizedLinear
from llmfw.core.model.trial.module_trial import (
    Recording,
    attention_input,
    is_of_transformers,
    is_untouched,
    uses_our_attention,
)

FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")
DECODER = {"embed_tokens", "layers", "norm", "rotary_emb"}
LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
FEEDING = ("gate_proj", "up_proj", "down_proj")
HEAD_NORMS = {"q_norm", "k_norm"}


@dataclass(frozen=True, slots=True)
class Norm:
    """An RMS norm: its weight and eps."""

    weight: torch.Tensor
    epsilon: float


@dataclass(frozen=True, slots=True)
class LayerParts:
    """The modules and sizes of a decoder layer.

    Attributes:
        layer: the layer itself.
        attention, feeding: attention block and feed-forward block.
        linears: the seven linear layers by name: each plain or merged, or all quantized.
        input_norm, after_norm: norms before the attention and the feed-forward block.
        head_norms: norms of query heads and of key heads; None: no such norms.
        head_dim: size of query, key and value heads.
        keywords: keyword arguments, except tensors, that the attention block passes to the attention
            interface.
    """

    layer: nn.Module
    attention: nn.Module
    feeding: nn.Module
    linears: dict[str, nn.Module]
    input_norm: Norm
    after_norm: Norm
    head_norms: tuple[Norm, Norm] | None
    head_dim: int
    keywords: dict[str, Any]

    def out_features(self, name: str) -> int:
        """Return the output width of the named linear layer."""
        size = self.linears[name].out_features
        assert isinstance(size, int)
        return size


def read_decoder(decoder: nn.Module) -> list[LayerParts] | None:
    """Return the parts of each of a decoder's layers; None if native code cannot replace the decoder."""
    family = type(decoder).__name__.removesuffix("Model")
    if family not in FAMILIES or not _is(decoder, f"{family}Model", DECODER) or decoder._parameters:
        return None
    embedding, rotary = decoder.get_submodule("embed_tokens"), decoder.get_submodule("rotary_emb")
    if type(embedding) not in (nn.Embedding, QuantizedEmbedding) or not _is(
        rotary, f"{family}RotaryEmbedding", set()
    ):
        return None
    if read_norm(decoder.get_submodule("norm"), family) is None:
        return None
    layers = decoder.layers
    if type(layers) is not nn.ModuleList or len(layers) != getattr(decoder.config, "num_hidden_layers", None):
        return None
    found = [_read_layer(layer, family) for layer in layers]
    parts = [each for each in found if each is not None]
    shapes = {(each.head_dim, *(each.out_features(name) for name in each.linears)) for each in parts}
    return parts if len(parts) == len(layers) and len(shapes) == 1 else None


def is_bare_causal(model: nn.Module, decoder: nn.Module) -> bool:
    """Return whether a model consists only of this decoder and a head."""
    family = type(decoder).__name__.removesuffix("Model")
    own = _is(model, f"{family}ForCausalLM", {"model", "lm_head"}) and not model._parameters
    return own and model.get_submodule("model") is decoder


def read_norm(module: nn.Module, family: str) -> Norm | None:
    """Return the weight and eps of an RMS norm, or None for any other module."""
    epsilon, weight = getattr(module, "variance_epsilon", None), getattr(module, "weight", None)
    if not _is(module, f"{family}RMSNorm", set()) or set(module._parameters) != {"weight"}:
        return None
    if not isinstance(weight, torch.Tensor) or weight.dim() != 1 or not isinstance(epsilon, float):
        return None
    return Norm(weight.detach(), epsilon)


def is_plain_linear(module: nn.Module) -> bool:
    """Return whether a module is an unmodified `nn.Linear` on the CPU."""
    return type(module) is nn.Linear and is_untouched(module) and module.weight.device.type == "cpu"


def is_quantized_linear(module: nn.Module) -> bool:
    """Return whether a module is an unmodified `QuantizedLinear` on the CPU."""
    return (
        type(module) is QuantizedLinear
        and is_untouched(module)
        and module.quantized.codes.device.type == "cpu"
    )


def is_plain_embedding(module: nn.Module) -> bool:
    """Return whether a module is an unmodified `nn.Embedding` without renormalization."""
    return type(module) is nn.Embedding and is_untouched(module) and module.max_norm is None


def _read_layer(layer: nn.Module, family: str) -> LayerParts | None:
    if not _is(layer, f"{family}DecoderLayer", LAYER) or layer._parameters:
        return None
    attention, feeding = layer.get_submodule("self_attn"), layer.get_submodule("mlp")
    parts = set(attention._modules)
    if not _is(attention, f"{family}Attention", parts) or parts - HEAD_NORMS != set(PROJECTIONS):
        return None
    if not _is(feeding, f"{family}MLP", {*FEEDING, "act_fn"}) or not _is_silu(
        feeding.get_submodule("act_fn")
    ):
        return None
    if not uses_our_attention(attention):
        return None
    linears = {name: attention.get_submodule(name) for name in PROJECTIONS}
    linears |= {name: feeding.get_submodule(name) for name in FEEDING}
    norms = [
        read_norm(layer.get_submodule(name), family)
        for name in ("input_layernorm", "post_attention_layernorm")
    ]
    norms += [
        read_norm(attention.get_submodule(name), family) for name in ("q_norm", "k_norm") if name in parts
    ]
    known = [norm for norm in norms if norm is not None]
    head_dim = getattr(attention, "head_dim", None)
    if len(known) < len(norms) or len(norms) not in (2, 4) or not isinstance(head_dim, int):
        return None
    if not (_are_linear(linears.values()) and _fit(linears, head_dim)):
        return None
    recording = Recording()
    attention(
        **attention_input(_size(linears["q_proj"], "in_features"), head_dim, known[0].weight),
        llmfw_step=recording,
    )
    if any(isinstance(kept, torch.Tensor) for kept in recording.keywords.values()):
        return None
    return LayerParts(
        *(layer, attention, feeding, linears, known[0], known[1]),
        head_norms=(known[2], known[3]) if len(known) == 4 else None,
        head_dim=head_dim,
        keywords=recording.keywords,
    )


def _size(linear: nn.Module, name: str) -> int:
    size = getattr(linear, name)
    assert isinstance(size, int)
    return size


def _fit(linears: dict[str, nn.Module], head_dim: int) -> bool:
    """Return whether the layers' sizes are consistent, and are even numbers if native code reads pairs."""
    sizes = {
        name: (_size(linear, "in_features"), _size(linear, "out_features"))
        for name, linear in linears.items()
    }
    width, queries = sizes["q_proj"]
    fed = sizes["gate_proj"][1]
    keys = sizes["k_proj"][1]
    expected = {
        "q_proj": (width, queries),
        "k_proj": (width, keys),
        "v_proj": (width, keys),
        "o_proj": (queries, width),
        "gate_proj": (width, fed),
        "up_proj": (width, fed),
        "down_proj": (fed, width),
    }
    return sizes == expected and not (width % 2 or head_dim % 2 or queries % head_dim or keys % head_dim)


def _is(module: nn.Module, name: str, parts: set[str]) -> bool:
    """Return whether a module is transformers' own, unmodified, with this class name and submodules."""
    own = type(module).__name__ == name and is_of_transformers(module)
    return own and set(module._modules) == parts


def _are_linear(modules: Iterable[nn.Module]) -> bool:
    """Return whether the modules are either all plain or merged linear layers, or all quantized ones."""
    modules = list(modules)
    return all(map(_is_linear, modules)) or all(map(is_quantized_linear, modules))


def _is_linear(module: nn.Module) -> bool:
    if type(module) is MergedPart:
        return is_untouched(module) and is_plain_linear(module.merged.product)
    return is_plain_linear(module)


def _is_silu(module: nn.Module) -> bool:
    return type(module) in (SiLUActivation, nn.SiLU) and is_untouched(module)


def bias_of(linear: nn.Module) -> torch.Tensor | None:
    """Return the bias of a plain, merged or quantized linear layer."""
    if isinstance(linear, MergedPart):
        whole = linear.merged.product.bias
        return None if whole is None else whole.split(linear.merged.sizes)[linear.index]
    assert isinstance(linear, nn.Linear | QuantizedLinear)
    return linear.bias
