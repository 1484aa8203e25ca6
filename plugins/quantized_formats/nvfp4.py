"""NVFP4 of compressed-tensors: floats of 4 bits (E2M1), with a float of 8 bits (E4M3) for each 16 inputs.

    weight_packed        uint8 [out, in / 2]           two codes, the first input's in the low 4 bits
    weight_scale         float8_e4m3fn [out, in / 16]
    weight_global_scale  float32 [1]                   divides all scales of the weight
    input_global_scale   float32 [1]                   divides all scales of the inputs, if inputs are rounded

    weight[o, i] = level(code[o, i]) * weight_scale[o, i / 16] / weight_global_scale

A code has a sign in its highest bit, and the index of one of eight levels in the others. Inputs are rounded
in the same way, with a scale for each 16 inputs of each row. Source: `compressors/nvfp4` and
`calculate_qparams` of compressed-tensors 0.20.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from llmfw.core import ModelError, StoredLayer, StoredTensor

from .settings import num_groups
from .stored import require

GROUP = 16
LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
LARGEST = 6.0
LARGEST_SCALE = 448.0
SCALE_OF_ZEROS = 0.125
"""Scale of 16 inputs that are all 0 or almost 0."""
FLOAT = torch.float8_e4m3fn
GLOBAL, INPUTS = "weight_global_scale", "input_global_scale"


def nvfp4_layer(name: str, tensors: Mapping[str, StoredTensor], *, rounds_inputs: bool) -> StoredLayer:
    """Return the format of a layer.

    Args:
        name: name of the layer.
        rounds_inputs: whether the layer's inputs are rounded, too.

    Raises:
        ModelError: a tensor is missing, or has another shape or dtype.
    """
    out_features, num_bytes = require(tensors, f"{name}.weight_packed", ("uint8",), (None, None)).shape
    in_features = 2 * num_bytes
    groups = num_groups(name, in_features, GROUP)
    require(tensors, f"{name}.weight_scale", ("float8_e4m3fn",), (out_features, groups))
    leaves = ["weight_packed", "weight_scale", GLOBAL, *([INPUTS] if rounds_inputs else [])]
    for leaf in leaves[2:]:
        require(tensors, f"{name}.{leaf}", ("float32",), (1,))
    names = {leaf: f"{name}.{leaf}" for leaf in leaves}
    return StoredLayer(name, out_features, in_features, names, has_module=rounds_inputs)


def nvfp4_weight(layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the weight of a layer, [out_features, in_features] in float32.

    Raises:
        ModelError: the weight's global scale is not above 0.
    """
    packed = tensors["weight_packed"]
    codes = torch.stack((packed & 15, packed >> 4), dim=-1).view(layer.out_features, -1, GROUP)
    levels = torch.tensor([*LEVELS, *(-level for level in LEVELS)])[codes.long()]
    scales = tensors["weight_scale"].float() / _global_scale(layer, tensors, GLOBAL)
    return (levels * scales[:, :, None]).view(layer.out_features, layer.in_features)


def nvfp4_module(layer: StoredLayer, linear: nn.Linear, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """Return a linear layer that rounds its inputs.

    Raises:
        ModelError: the inputs' global scale is not above 0.
    """
    return FP4InputLinear(linear, _global_scale(layer, tensors, INPUTS).clone())


class FP4InputLinear(nn.Linear):
    """A linear layer that rounds its inputs to floats of 4 bits.

    Args:
        linear: plain linear layer, whose weight and bias are used.
        global_scale: number that divides the scales of inputs, [1].
    """

    global_scale: torch.Tensor

    def __init__(self, linear: nn.Linear, global_scale: torch.Tensor) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, "meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.register_buffer("global_scale", global_scale, persistent=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, [..., out_features], for `hidden`, [..., in_features]."""
        return functional.linear(self.rounded(hidden), self.weight, self.bias)

    def rounded(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return rounded inputs, [..., in_features], in their dtype."""
        groups = hidden.float().unflatten(-1, (-1, GROUP))
        largest = groups.abs().amax(-1, keepdim=True) / LARGEST
        scales = (largest * self.global_scale).clamp(max=LARGEST_SCALE).to(FLOAT).float()
        scales = torch.where(scales == 0, SCALE_OF_ZEROS, scales) / self.global_scale
        return (nearest_levels(groups / scales) * scales).flatten(-2).to(hidden.dtype)


def nearest_levels(numbers: torch.Tensor) -> torch.Tensor:
    """Round each number to the nearest float of 4 bits, and ties to the float with the even code."""
    size = numbers.abs().clamp(max=LARGEST)
    halves, wholes, twos = (size * 2).round() / 2, size.round(), (size / 2).round() * 2
    return torch.where(size < 2, halves, torch.where(size < 4, wholes, twos)).copysign(numbers)


def _global_scale(layer: StoredLayer, tensors: Mapping[str, torch.Tensor], leaf: str) -> torch.Tensor:
    scale = tensors[leaf]
    if not 0 < float(scale) < math.inf:
        raise ModelError(
            f"{layer.tensors[leaf]} is {float(scale)}; it must be above 0: download the model again"
        )
    return scale
