"""Packed products give what torch's give, to the last bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from llmfw.core.model.changes.fuse import merge_projections
from llmfw.core.model.changes.pack import PackedLinear, pack_linears
from llmfw.core.model.device.devices import has_fast_bfloat16

needs_bfloat16 = pytest.mark.skipif(not has_fast_bfloat16(), reason="without instructions for bfloat16")


@needs_bfloat16
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 48), (3, 48), (1, 70, 48), (513, 48)])
def test_packed_products_are_bit_identical(shape: tuple[int, ...], bias: bool) -> None:
    linear = nn.Linear(48, 80, bias, dtype=torch.bfloat16)
    hidden = torch.randn(shape).bfloat16()
    with torch.inference_mode():
        assert torch.equal(PackedLinear(linear)(hidden), linear(hidden))
        strided = torch.randn(*shape[:-1], 96).bfloat16()[..., ::2]
        assert torch.equal(PackedLinear(linear)(strided), linear(strided.contiguous()))


@needs_bfloat16
def test_the_packed_weight_can_be_read() -> None:
    linear = nn.Linear(48, 80, dtype=torch.bfloat16)
    assert torch.equal(PackedLinear(linear).weight, linear.weight)


@needs_bfloat16
def test_merged_projections_are_packed_too() -> None:
    layer = nn.ModuleDict(
        {name: nn.Linear(48, 16, dtype=torch.bfloat16) for name in ("gate_proj", "up_proj")}
    )
    layer = nn.ModuleDict({"mlp": _Gate(layer)})
    hidden = torch.randn(5, 48).bfloat16()
    with torch.inference_mode():
        expected = layer["mlp"](hidden)
        assert merge_projections(layer) == 1
        assert pack_linears(layer) == 1
        assert torch.equal(layer["mlp"](hidden), expected)


class _Gate(nn.Module):
    def __init__(self, parts: nn.ModuleDict) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = parts["gate_proj"], parts["up_proj"]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.gate_proj(hidden) * self.up_proj(hidden)


def test_float32_and_subclasses_are_not_packed() -> None:
    class Other(nn.Linear):
        pass

    model = nn.Sequential(nn.Linear(8, 8), Other(8, 8, dtype=torch.bfloat16))
    assert pack_linears(model) == 0


def test_nothing_is_packed_without_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN refuses to pack on such CPUs, and `--dtype bfloat16` is served with torch's own layers."""
    monkeypatch.setattr("llmfw.core.model.changes.pack.has_fast_bfloat16", lambda: False)
    layers = nn.Sequential(nn.Linear(48, 80, dtype=torch.bfloat16))
    assert pack_linears(layers) == 0
    assert type(layers[0]) is nn.Linear
