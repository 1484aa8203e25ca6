"""The module pass `cpu-native`: replaces decoders of known model families with native code.

A decoder is replaced as a whole or not at all; quantized linear layers, and linear layers with room for
adapters, are replaced in any decoder. The modules of a replaced decoder remain in the module tree under their
names, with the same weights. Linear layers store their weights only in the native layout, so no weight is in memory twice.
"""

from __future__ import annotations

import torch
from torch import nn

from llmfw.core import ModulePass
from llmfw.core.model.adapters.adapted_linear import AdaptedLinear
from llmfw.core.model.quantization.modules import QuantizedEmbedding, QuantizedLinear, num_bytes
from llmfw.core.model.trial.module_trial import Recording, agree, attention_input

from .decoder import NativeDecoder
from .headed import HeadedForward
from .library import DTYPES, why_not
from .quantized_weights import pack_linears
from .recognition import (
    LayerParts,
    Norm,
    is_bare_causal,
    is_plain_embedding,
    is_plain_linear,
    is_quantized_linear,
    read_decoder,
    read_norm,
)
from .stack import PackedLayer, Stack
from .weights import Arena, NativeEmbedding, NativeLinear


class NativePass(ModulePass):
    """Replaces a decoder with a `NativeDecoder`, and the head after it with a `NativeLinear`.

    Also replaces each quantized linear layer, and the base's product in each linear layer with room for
    adapters, with a `NativeLinear`, in any decoder.
    """

    @classmethod
    def unsupported(cls, device: str, dtype: torch.dtype) -> str | None:
        """Return why there is no native code for this device and dtype, or None if there is."""
        if torch.device(device).type != "cpu":
            return "it is for cpu"
        if dtype not in DTYPES:
            return f"it computes in bfloat16 and float32, not in {str(dtype).removeprefix('torch.')}"
        return why_not(dtype)

    @torch.inference_mode()
    def apply(self, model: nn.Module) -> int:
        """Replace all supported modules; return their number."""
        count = 0
        for name, decoder in list(model.named_modules()):
            parts = read_decoder(decoder) if name else None
            if not parts or parts[0].input_norm.weight.device.type != "cpu":
                continue
            arena = Arena(sum(map(num_bytes, decoder.layers)))
            layers, replaced = _pack_layers(parts, arena)
            count += replaced
            if len(layers) < len(parts):
                continue
            native = NativeDecoder(decoder, layers, _norm_of(decoder))
            is_bare = is_bare_causal(model, decoder)
            _set(model, name, native)
            count += 1 + _replace_head(model, native)
            self.has_own_threads = True
            if is_bare:
                model.forward = HeadedForward(native, model.get_submodule("lm_head"))
        return count + _replace_quantized(model) + _replace_adapted(model)


def _pack_layers(parts: list[LayerParts], arena: Arena) -> tuple[list[PackedLayer], int]:
    """Pack and replace layers one by one; return the packed layers and the number of replaced modules.

    Each packed layer is checked before its linear layers replace the original ones. Stops at the first layer
    that computes a wrong result: earlier layers keep their native linear layers and are otherwise unchanged.
    """
    layers, count = [], 0
    for each in parts:
        packed = PackedLayer(each, arena)
        if not _computes_the_same(packed):
            break
        count += packed.take_place()
        layers.append(packed)
    return layers, count


def _computes_the_same(packed: PackedLayer) -> bool:
    """Return whether a layer and its native form give the same results on a few random tokens.

    A stack always ends with a norm, so the layer's own result is normalized before the comparison.
    """
    parts = packed.parts
    given = attention_input(packed.width, parts.head_dim, parts.input_norm.weight)
    theirs, ours = Recording(), Recording()
    expected = parts.layer(**given, position_ids=None, use_cache=False, llmfw_step=theirs)
    hidden, (cosines, sines) = given["hidden_states"], given["position_embeddings"]
    positions = torch.arange(hidden.shape[1], dtype=torch.int64, device="cpu")
    norm = Norm(torch.ones_like(parts.input_norm.weight), parts.input_norm.epsilon)
    stack = Stack([packed], norm)
    result = stack.run(hidden[0], positions, (cosines[0], sines[0]), ours)
    scaled = expected * torch.rsqrt(expected.float().pow(2).mean(-1, keepdim=True) + norm.epsilon).to(
        expected.dtype
    )
    return agree(scaled[0], result) and theirs.has_the_same(ours)


def _replace_head(model: nn.Module, decoder: NativeDecoder) -> int:
    """Replace the head, and embeddings tied to it, with packed ones; return the number of modules."""
    head, embedding = getattr(model, "lm_head", None), decoder.embed_tokens
    if not isinstance(head, nn.Module):
        return 0
    if is_quantized_linear(head):
        assert isinstance(head, QuantizedLinear)
        is_tied = isinstance(embedding, QuantizedEmbedding) and embedding.quantized is head.quantized
        dtype = head.quantized.dtype
    elif is_plain_linear(head):
        assert isinstance(head, nn.Linear)
        is_tied = is_plain_embedding(embedding) and embedding.weight is head.weight
        dtype = head.weight.dtype
    else:
        return 0
    if dtype not in DTYPES:
        return 0
    packed = pack_linears([head], None if head.bias is None else [head.bias], Arena())
    model.lm_head = NativeLinear(packed)
    if is_tied:
        decoder.embed_tokens = NativeEmbedding(packed)
    return 2 if is_tied else 1


def _replace_quantized(model: nn.Module) -> int:
    """Replace the quantized linear layers of any model with native ones; return the number of layers."""
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if is_quantized_linear(child):
                assert isinstance(child, QuantizedLinear)
                if child.quantized.dtype in DTYPES:
                    biases = None if child.bias is None else [child.bias]
                    setattr(parent, name, NativeLinear(pack_linears([child], biases, Arena())))
                    count += 1
    return count


def _replace_adapted(model: nn.Module) -> int:
    """Replace the base's product in each linear layer with room for adapters; return the number of layers."""
    count = 0
    for module in list(model.modules()):
        if not isinstance(module, AdaptedLinear) or not is_plain_linear(module.base):
            continue
        base = module.base
        assert isinstance(base, nn.Linear)
        if base.weight.dtype in DTYPES:
            biases = None if base.bias is None else [base.bias]
            module.base = NativeLinear(pack_linears([base], biases, Arena()))
            count += 1
    return count


def _norm_of(decoder: nn.Module) -> Norm:
    norm = read_norm(decoder.get_submodule("norm"), type(decoder).__name__.removesuffix("Model"))
    assert norm is not None
    return norm


def _set(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)
