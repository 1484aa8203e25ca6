"""A quantization scheme of 6 bits in plain torch, as an outsider would write it: codes packed four in three bytes."""

from __future__ import annotations

from typing import Annotated

import msgspec
import torch
from torch import nn
from torch.nn import functional

from llmfw.core import LinearLayer, QuantizationScheme

LARGEST = 31
SCALE_BYTES = 4


class SixBitWeight(nn.Module):
    """A weight in whole numbers from -31 to 31, with a scale in float32 for each run of a row's weights.

    Its codes are [out_features, groups, group / 4 * 3] in uint8, its scales [out_features, groups].
    """

    codes: torch.Tensor
    scales: torch.Tensor

    def __init__(self, weight: torch.Tensor, group: int) -> None:
        super().__init__()
        out_features, self.in_features = weight.shape
        padded = functional.pad(weight.float(), (0, -self.in_features % group))
        runs = padded.view(out_features, -1, group)
        scales = runs.abs().amax(-1) / LARGEST
        numbers = (runs / torch.where(scales > 0, scales, 1.0)[..., None]).round().int() + LARGEST
        a, b, c, d = numbers.view(out_features, scales.shape[1], -1, 4).unbind(-1)
        packed = torch.stack((a | (b << 6), (b >> 2) | (c << 4), (c >> 4) | (d << 2)), dim=-1) & 255
        self.register_buffer("codes", packed.to(torch.uint8).flatten(-2))
        self.register_buffer("scales", scales)

    def rows(self, index: slice | torch.Tensor) -> torch.Tensor:
        """Return rows of the dequantized weight in float32."""
        x, y, z = self.codes[index].int().unflatten(-1, (-1, 3)).unbind(-1)
        numbers = torch.stack((x, (x >> 6) | (y << 2), (y >> 4) | (z << 4), z >> 2), dim=-1) & 63
        found = (numbers.flatten(-2) - LARGEST) * self.scales[index][..., None]
        return found.flatten(-2)[..., : self.in_features]


class SixBitLinear(nn.Module):
    """A linear layer with a weight in 6 bits."""

    def __init__(self, held: SixBitWeight, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.held = held
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        output = hidden.float() @ self.held.rows(slice(None)).T
        return (output if self.bias is None else output + self.bias.float()).to(hidden.dtype)


class SixBitEmbedding(nn.Module):
    """Embeddings that share the weight of a head in 6 bits."""

    def __init__(self, held: SixBitWeight, dtype: torch.dtype) -> None:
        super().__init__()
        self.held = held
        self.dtype = dtype

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.held.rows(ids).to(self.dtype)


class SixBit(QuantizationScheme):
    """Stores weights in 6 bits; leaves out layers that an option names."""

    tolerance = 0.05

    class Options(QuantizationScheme.Options, frozen=True):
        group: Annotated[int, msgspec.Meta(ge=4, multiple_of=4)] = 32
        skip: str = ""

    options: Options
    dtype = torch.float32

    def unsupported(self, device: str, dtype: torch.dtype) -> str | None:
        return "it is for float32 and bfloat16" if dtype == torch.float16 else None

    def num_bytes(self, layer: LinearLayer) -> int | None:
        if self.options.skip and self.options.skip in layer.name:
            return None
        groups = -(-layer.in_features // self.options.group)
        return layer.out_features * groups * (self.options.group // 4 * 3 + SCALE_BYTES)

    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        self.dtype = layer.dtype
        return SixBitLinear(SixBitWeight(weight, self.options.group), bias)

    def embedding(self, head: nn.Module) -> nn.Module:
        assert isinstance(head, SixBitLinear)
        return SixBitEmbedding(head.held, self.dtype)


def dequantized(weight: torch.Tensor, group: int = 32) -> torch.Tensor:
    """Return what a weight is after quantization, computed in float64 and without packing."""
    padded = functional.pad(weight.double(), (0, -weight.shape[1] % group)).view(len(weight), -1, group)
    scales = (padded.float().abs().amax(-1, keepdim=True) / LARGEST).double()
    whole = (padded / scales.clamp_min(1e-300)).round() * scales
    return whole.flatten(1)[:, : weight.shape[1]]
