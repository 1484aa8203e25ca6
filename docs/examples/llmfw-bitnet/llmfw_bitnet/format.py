"""Reads BitNet checkpoints: weights of -1, 0 and 1, four to a byte, with one scale for a layer.

`weight` [outputs / 4, inputs] holds in its bits 2i and 2i + 1 the numbers of the i-th quarter of the outputs, plus 1. Layers
round their inputs to 8 bits, with a scale for each token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from llmfw.core import ModelError, QuantizedFormat, StoredLayer, StoredTensor
from llmfw.core.testing import QuantizedExample

PER_BYTE = 4
SCALES = ("F32", "F16", "BF16", "float32", "float16", "bfloat16")
KNOWN = {
    "quant_method",
    "linear_class",
    "quantization_mode",
    "use_rms_norm",
    "rms_norm_eps",
    "modules_to_not_convert",
}


def example(out_features: int, in_features: int, seed: int) -> QuantizedExample:
    """Return a random layer in this format, for tests."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(-1, 2, (out_features, in_features), generator=generator)
    scale = torch.rand(1, generator=generator) + 0.5
    quarters = (numbers + 1).to(torch.uint8).chunk(PER_BYTE)
    packed = sum(quarter << 2 * i for i, quarter in enumerate(quarters))
    settings = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
    return QuantizedExample(settings, {"weight": packed, "weight_scale": scale}, numbers * scale)


class BitNet(QuantizedFormat):
    """Reads checkpoints with "quantization_config": {"quant_method": "bitnet"}."""

    conformance: ClassVar = {"example": example}

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        for name, value in settings.items():
            if name not in KNOWN:
                raise ModelError(
                    f"quantization_config.{name} is not known; ask the checkpoint's makers what it means"
                )
            if name == "use_rms_norm" and value:
                raise ModelError(
                    "quantization_config.use_rms_norm is set in config.json; such layers cannot be read"
                )
        _check(settings, "quantization_mode", "offline", ("offline",))
        kind = _check(settings, "linear_class", "bitlinear", ("bitlinear", "autobitlinear"))
        self._divides = kind == "bitlinear"  # its scale is the inverse of the other's

    def layers(self, tensors: Mapping[str, StoredTensor]) -> Iterator[StoredLayer]:
        for name, stored in tensors.items():
            layer, _, leaf = name.rpartition(".")
            scale = tensors.get(f"{layer}.weight_scale")
            if leaf == "weight" and (scale is not None or stored.dtype in ("U8", "uint8")):
                yield _layer(layer, stored, scale)
            elif leaf == "weight_scale" and f"{layer}.weight" not in tensors:
                raise ModelError(f"{name} has no {layer}.weight; download the checkpoint again")

    def weight(self, layer: StoredLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        packed, scale = tensors["weight"], tensors["weight_scale"].float()
        codes = torch.cat([(packed >> 2 * i) & 3 for i in range(PER_BYTE)])
        if (codes == 3).any():
            raise ModelError(
                f"{layer.name}.weight has a code of 3, which is not a weight; download the checkpoint again"
            )
        if not (torch.isfinite(scale) & (scale > 0)).all():
            raise ModelError(
                f"{layer.name}.weight_scale is not a positive number; download the checkpoint again"
            )
        numbers = codes.float() - 1
        return numbers / scale if self._divides else numbers * scale

    def module(self, layer: StoredLayer, linear: nn.Linear, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
        return RoundedInputs(linear)


class RoundedInputs(nn.Module):
    """Computes a linear layer whose inputs are rounded to 8 bits, with a scale for each row."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        values = inputs.float()
        scale = 127 / values.abs().amax(dim=-1, keepdim=True).clamp(min=1e-5)
        rounded = (values * scale).round().clamp(-128, 127) / scale
        return self.linear(rounded.to(inputs.dtype))


def _layer(name: str, weight: StoredTensor, scale: StoredTensor | None) -> StoredLayer:
    if weight.dtype not in ("U8", "uint8") or len(weight.shape) != 2:
        raise ModelError(f"{name}.weight is {weight.shape} {weight.dtype}; it must be a matrix of uint8")
    if scale is None or scale.dtype not in SCALES or tuple(scale.shape) not in ((), (1,)):
        raise ModelError(
            f"{name}.weight_scale is not a single floating-point number; download the checkpoint again"
        )
    rows, in_features = weight.shape
    names = {leaf: f"{name}.{leaf}" for leaf in ("weight", "weight_scale")}
    return StoredLayer(name, rows * PER_BYTE, in_features, names, has_module=True)


def _check(settings: Mapping[str, Any], name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = settings.get(name, default)
    if value not in allowed:
        raise ModelError(
            f"quantization_config.{name} is {value!r:.80} in config.json; it must be {' or '.join(allowed)}"
        )
    return str(value)
