"""The formats of compressed-tensors: integers of 4 and 8 bits, floats of 8 bits, and NVFP4.

llm-compressor writes these formats.

    weight             int8 or float8_e4m3fn [out, in]; or, in "pack-quantized",
    weight_packed      int32 [out, in * bits / 32]  code + 2^(bits - 1) of consecutive inputs, low bits first
    weight_shape       int64 [2]                    out and in; only with weight_packed
    weight_scale       [1], [out, 1], [out, groups] or [row blocks, column blocks]
    weight_zero_point  if asymmetric: int8 in the shape of weight_scale, or int32 packed along the outputs
    weight_g_idx       int32 [in]                   group of each input, with act-order
    input_scale        [1]                          stored scale of rounded inputs, if any

    weight[o, i] = weight_scale[o, group of i] * (code[o, i] - zero_point[o, group of i])

NVFP4 has other tensors: see `nvfp4`. Source: `compressors` and `quantization/lifecycle/forward.py` of
compressed-tensors 0.12.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from llmfw.core import ModelError, QuantizedFormat, StoredLayer, StoredTensor

from .bits import WORD, unpack_columns, unpack_rows
from .blocks import expanded, num_blocks
from .compressed_scheme import FORMATS, Scheme, read_scheme
from .examples import compressed_example
from .groups import groups_of_inputs
from .nvfp4 import nvfp4_layer, nvfp4_module, nvfp4_weight
from .rounded_inputs import RoundedInputLinear
from .settings import Settings, num_groups
from .stored import modules_with, require

SCALE_DTYPES = ("bfloat16", "float16", "float32")
ANY_LINEAR = "Linear"


class CompressedTensors(QuantizedFormat):
    """Reads checkpoints of compressed-tensors: quantized weights, with layer inputs rounded or not."""

    conformance: ClassVar = {
        "example": compressed_example,
        "refused": [
            {"transform_config": {"r1": {"type": "hadamard"}}},
            {"quantization_status": "frozen"},
            {"sparsity_config": {"format": "sparse-24-bitmask"}},
        ],
    }

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        read = Settings(settings)
        read.one_of("quantization_status", ("compressed",), default="compressed")
        read.refuse("transform_config")
        sparsity = settings.get("sparsity_config")
        if sparsity and not (isinstance(sparsity, Mapping) and sparsity.get("format") == "dense"):
            raise read.refusal("sparsity_config", "llmfw reads dense weights")
        form = read.one_of("format", (*FORMATS, "mixed-precision"))
        groups = settings.get("config_groups")
        if not isinstance(groups, Mapping) or not groups:
            raise read.refusal("config_groups", "it must have at least one group")
        self._schemes = [read_scheme(name, group, form) for name, group in groups.items()]

    def layers(self, tensors: Mapping[str, StoredTensor]) -> Iterator[StoredLayer]:
        packed, scaled = modules_with(tensors, "weight_packed"), modules_with(tensors, "weight_scale")
        for name in dict.fromkeys((*packed, *scaled)):
            yield self._layer(name, tensors)

    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        scheme = self._scheme(layer.name)
        if scheme.is_nvfp4:
            return nvfp4_weight(layer, tensors)
        codes = _codes(layer, scheme, tensors)
        scales = tensors["weight_scale"].float()
        zeros = _zeros(layer, scheme, tensors, scales)
        if scheme.strategy == "block":
            assert scheme.block is not None
            scales, zeros = (
                expanded(each, scheme.block, layer.out_features, layer.in_features)
                for each in (scales, zeros)
            )
        elif scheme.strategy == "group":
            order = None if scheme.has_act_order else "no actorder"
            stored = tensors.get("weight_g_idx")
            name = layer.tensors.get("weight_g_idx", "")
            group = groups_of_inputs(name, stored, layer.in_features, scales.shape[1], order)
            scales, zeros = scales[:, group], zeros[:, group]
        return (codes - zeros) * scales

    def module(self, layer: StoredLayer, linear: nn.Linear, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
        scheme = self._scheme(layer.name)
        activations = scheme.activations
        assert activations is not None
        if scheme.is_nvfp4:
            return nvfp4_module(layer, linear, tensors)
        scale = tensors.get("input_scale")
        if scale is not None and not 0 < float(scale) < math.inf:
            raise ModelError(
                f"{layer.tensors['input_scale']} is {float(scale)}; it must be above 0: download the model again"
            )
        return RoundedInputLinear(linear, activations, None if scale is None else scale.clone())

    def _scheme(self, name: str) -> Scheme:
        """Return the scheme that names the layer, or else the scheme for all linear layers."""
        by_name = [scheme for scheme in self._schemes if scheme.names(name)]
        others = [scheme for scheme in self._schemes if ANY_LINEAR in scheme.targets]
        if not by_name and not others:
            raise ModelError(
                f"{name} is quantized, and no target of quantization_config.config_groups in config.json names it; add it"
            )
        return (by_name or others)[0]

    def _layer(self, name: str, tensors: Mapping[str, StoredTensor]) -> StoredLayer:
        scheme = self._scheme(name)
        if scheme.is_nvfp4:
            return nvfp4_layer(name, tensors, rounds_inputs=scheme.activations is not None)
        leaves = ["weight_packed", "weight_shape"] if scheme.is_packed else ["weight"]
        if scheme.is_packed:
            out_features, words = require(tensors, f"{name}.weight_packed", ("int32",), (None, None)).shape
            in_features = words * (WORD // scheme.bits)
            require(tensors, f"{name}.weight_shape", ("int64", "int32"), (2,))
        else:
            dtype = "float8_e4m3fn" if scheme.is_float else "int8"
            out_features, in_features = require(tensors, f"{name}.weight", (dtype,), (None, None)).shape
        shape = _scale_shape(name, out_features, in_features, scheme)
        require(tensors, f"{name}.weight_scale", SCALE_DTYPES, shape)
        leaves.append("weight_scale")
        zero = f"{name}.weight_zero_point"
        if zero in tensors or not scheme.is_symmetric:
            is_packed = scheme.is_packed and zero in tensors and "32" in tensors[zero].dtype
            rows = -(-shape[0] // (WORD // scheme.bits)) if is_packed else shape[0]
            dtypes = ("int32",) if is_packed else ("int8", "float8_e4m3fn")
            require(tensors, zero, dtypes, (rows, *shape[1:]))
            leaves.append("weight_zero_point")
        index = f"{name}.weight_g_idx"
        if index in tensors or scheme.has_act_order:
            require(tensors, index, ("int32", "int64"), (in_features,))
            leaves.append("weight_g_idx")
        rounds = scheme.activations is not None
        if scheme.activations is not None and not scheme.activations.is_dynamic:
            require(tensors, f"{name}.input_scale", SCALE_DTYPES, (1,))
            leaves.append("input_scale")
        names = {leaf: f"{name}.{leaf}" for leaf in leaves}
        return StoredLayer(name, out_features, in_features, names, has_module=rounds)


def _scale_shape(name: str, out_features: int, in_features: int, scheme: Scheme) -> tuple[int, ...]:
    if scheme.strategy == "tensor":
        return (1,)
    if scheme.block is not None:
        return num_blocks(out_features, in_features, scheme.block)
    return out_features, num_groups(name, in_features, scheme.group_size)


def _codes(layer: StoredLayer, scheme: Scheme, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the codes of a weight, [out_features, in_features] in float32."""
    if not scheme.is_packed:
        return tensors["weight"].float()
    shape = tensors["weight_shape"].tolist()
    if shape != [layer.out_features, layer.in_features]:
        raise ModelError(
            f"{layer.tensors['weight_shape']} says {shape}, and the packed weight is {[layer.out_features, layer.in_features]}; "
            "download the model again"
        )
    return unpack_columns(tensors["weight_packed"], scheme.bits).float() - (1 << (scheme.bits - 1))


def _zeros(
    layer: StoredLayer, scheme: Scheme, tensors: Mapping[str, torch.Tensor], scales: torch.Tensor
) -> torch.Tensor:
    """Return the zero points, in the shape of the scales, in float32."""
    stored = tensors.get("weight_zero_point")
    if stored is None:
        return torch.zeros_like(scales)
    if stored.dtype == torch.int32:
        zeros = unpack_rows(stored, scheme.bits)[: len(scales)].float() - (1 << (scheme.bits - 1))
    else:
        zeros = stored.float()
    if scheme.is_symmetric and bool(zeros.any()):
        raise ModelError(
            f"{layer.tensors['weight_zero_point']} has other numbers than 0, and config.json says symmetric: true; correct it"
        )
    return zeros
