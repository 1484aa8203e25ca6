"""Quantization schemes that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from llmfw.core import LinearLayer, QuantizationScheme
from llmfw.core.testing import QuantizationSchemeTests


class Linear(nn.Module):
    """A weight in eight bits with a scale for each row; `hidden` is what a subclass changes."""

    codes: torch.Tensor
    scales: torch.Tensor

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        scales = self.scales_of(weight.float())
        safe = torch.where(scales > 0, scales, 1.0)
        self.register_buffer("codes", (weight.float() / safe[:, None]).round().to(torch.int8))
        self.register_buffer("scales", scales)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def scales_of(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.abs().amax(-1) / 127

    def rows(self, index: Any = slice(None)) -> torch.Tensor:
        return self.codes[index].float() * self.scales[index][..., None]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.float()
        return functional.linear(hidden.float(), self.rows(), bias).to(hidden.dtype)


class Embedding(nn.Module):
    def __init__(self, head: Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.head, self.dtype = head, dtype

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head.rows(ids).to(self.dtype)


class GoodScheme(QuantizationScheme):
    """Keeps all promises: what the others are measured by."""

    tolerance = 0.1
    linear: Any = Linear
    dtype = torch.float32

    def num_bytes(self, layer: LinearLayer) -> int | None:
        return layer.out_features * (layer.in_features + 4)

    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        self.dtype = layer.dtype
        module: nn.Module = self.linear(weight, bias)
        return module

    def embedding(self, head: nn.Module) -> nn.Module:
        assert isinstance(head, Linear)
        return Embedding(head, self.dtype)


class ForgetsTheBias(GoodScheme):
    class linear(Linear):  # noqa: N801
        def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
            super().__init__(weight, None)


class PromisesTooMuch(GoodScheme):
    tolerance = 1e-6


class ComputesInDoubles(GoodScheme):
    class linear(Linear):  # noqa: N801
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return super().forward(hidden).double()


class DropsTheBatch(GoodScheme):
    class linear(Linear):  # noqa: N801
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return super().forward(hidden.squeeze(0))


class FailsForManyRows(GoodScheme):
    """Has room for 256 rows only."""

    class linear(Linear):  # noqa: N801
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            kept = super().forward(hidden[..., :256, :])
            return functional.pad(kept, (0, 0, 0, hidden.shape[-2] - kept.shape[-2]))


class MixesLongPrompts(GoodScheme):
    """Takes the mean of the outputs from row 512 on."""

    class linear(Linear):  # noqa: N801
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            found = super().forward(hidden)
            if found.shape[-2] > 512:
                found[..., 512:, :] = found[..., 512:, :].mean(-2, keepdim=True)
            return found


class LosesLateOutputs(GoodScheme):
    """Has room for 1,400 outputs."""

    class linear(Linear):  # noqa: N801
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            found = super().forward(hidden)
            found[..., 1400:1405] = 0
            return found


class CopiesIntoAnArray(GoodScheme):
    class linear(Linear):  # noqa: N801
        def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
            super().__init__(weight, bias)
            self.array = weight.float().numpy().copy()


class ScalesTheBias(GoodScheme):
    class linear(Linear):  # noqa: N801
        def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
            super().__init__(weight, None if bias is None else bias.mul_(1.01))


class ForgetsTheScales(GoodScheme):
    def num_bytes(self, layer: LinearLayer) -> int | None:
        return layer.out_features * layer.in_features


class CachesTheWeight(GoodScheme):
    """Keeps the dequantized weight of the last call."""

    class linear(Linear):  # noqa: N801
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            self.cached = self.rows()
            return super().forward(hidden)


class KeepsTheWeight(GoodScheme):
    class linear(Linear):  # noqa: N801
        def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
            super().__init__(weight, bias)
            self.original = [weight.detach()]


class QuantizesInPlace(GoodScheme):
    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        module = super().quantize(layer, weight, bias)
        weight[:1] *= 1.001
        return module


class StoresFloats(GoodScheme):
    """Has the same size as before in 16 bits, and twice that in 32."""

    class linear(Linear):  # noqa: N801
        def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
            super().__init__(weight, bias)
            self.codes = self.codes.double()

    def num_bytes(self, layer: LinearLayer) -> int | None:
        return layer.out_features * (8 * layer.in_features + 4)


class ScalesAllRowsAlike(GoodScheme):
    class linear(Linear):  # noqa: N801
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            step = (hidden.float().abs().max() / 127).clamp_min(1e-9)
            return super().forward(((hidden.float() / step).round() * step).to(hidden.dtype))


class ChangesAfterManyCalls(GoodScheme):
    class linear(Linear):  # noqa: N801
        calls = 0

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return super().forward(hidden) * (1.001 if self.calls > 100 else 1)


class RoundsAtRandom(GoodScheme):
    class linear(Linear):  # noqa: N801
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            noise = 1e-3 * torch.randn(hidden.shape, device=hidden.device)
            return super().forward((hidden.float() * (1 + noise)).to(hidden.dtype))


class ScalesInputsInPlace(GoodScheme):
    class linear(Linear):  # noqa: N801
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return super().forward(hidden.mul_(2)) / 2


class SharesItsScales(GoodScheme):
    """Reuses one buffer for the scales of all layers of a size."""

    def __init__(self, options: QuantizationScheme.Options) -> None:
        super().__init__(options)
        self.scales: dict[int, torch.Tensor] = {}

    def quantize(self, layer: LinearLayer, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        module = super().quantize(layer, weight, bias)
        assert isinstance(module, Linear)
        module.scales = self.scales.setdefault(layer.out_features, module.scales).copy_(module.scales)
        return module


class DividesByZero(GoodScheme):
    class linear(Linear):  # noqa: N801
        def rows(self, index: Any = slice(None)) -> torch.Tensor:
            return super().rows(index) / self.scales[index][..., None] * self.scales[index][..., None]


class ClipsLargeWeights(GoodScheme):
    class linear(Linear):  # noqa: N801
        def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
            super().__init__(weight.clamp(-1, 1), bias)


class CopiesTheHead(GoodScheme):
    def embedding(self, head: nn.Module) -> nn.Module:
        assert isinstance(head, Linear)
        return nn.Embedding.from_pretrained(head.rows().to(self.dtype))


class Mirrored(Embedding):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return super().forward(ids).flip(-1)


class MirrorsEmbeddings(GoodScheme):
    def embedding(self, head: nn.Module) -> nn.Module:
        assert isinstance(head, Linear)
        return Mirrored(head, self.dtype)


class CountsHeadsLess(GoodScheme):
    """Counts what it would take if the head were as the other layers."""

    def num_bytes(self, layer: LinearLayer) -> int | None:
        return layer.out_features * (layer.in_features + 4) // (2 if layer.is_head else 1)


class OfKind(QuantizationSchemeTests):
    kind: type[QuantizationScheme]

    @pytest.fixture
    def scheme(self) -> QuantizationScheme:
        return self.kind(self.kind.Options())

    @pytest.fixture
    def dtype(self) -> torch.dtype:
        return torch.float32


def test_class(kind: type[QuantizationScheme]) -> Any:
    """Return a test class for a scheme."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in (GoodScheme, *GoodScheme.__subclasses__()):
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
