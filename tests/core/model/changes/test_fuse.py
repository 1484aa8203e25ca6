"""Merged projections give what the single ones gave."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from llmfw.core.model.changes.fuse import merge_projections
from llmfw.core.model.changes.pack import pack_linears


class Layer(nn.Module):
    def __init__(self, bias: bool = False, key_width: int = 8) -> None:
        super().__init__()
        self.q_proj = nn.Linear(8, 12, bias=bias)
        self.k_proj = nn.Linear(key_width, 4, bias=bias)
        self.v_proj = nn.Linear(8, 4, bias=bias)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [self.q_proj(x), self.k_proj(y), self.v_proj(x)]


def test_merged_products_equal_the_separate_ones() -> None:
    for bias in (False, True):
        layer, x = Layer(bias), torch.randn(3, 8)
        expected = layer(x, x)
        assert merge_projections(layer) == 2
        assert len(list(layer.parameters())) == 1 + bias
        for _ in range(2):
            assert all(map(torch.allclose, layer(x, x), expected))


def test_projections_of_different_inputs_stay_correct() -> None:
    layer, x, y = Layer(), torch.randn(3, 8), torch.randn(3, 8)
    expected = layer(x, y)
    merge_projections(layer)
    assert all(map(torch.allclose, layer(x, y), expected))


def test_projections_of_different_width_are_not_merged() -> None:
    layer = Layer(key_width=6)
    assert merge_projections(layer) == 0
    assert type(layer.q_proj) is nn.Linear


def test_subclasses_of_linear_are_not_merged() -> None:
    class Quantized(nn.Linear):
        pass

    layer = Layer()
    layer.q_proj = Quantized(8, 12)
    assert merge_projections(layer) == 0


def test_merged_projections_still_show_their_weights() -> None:
    layer = Layer()
    weight = layer.k_proj.weight.clone()
    merge_projections(layer)
    assert torch.equal(layer.k_proj.weight, weight)


@pytest.mark.parametrize("change", ["no weight", "a forward of its own", "codes"])
def test_quantized_projections_are_not_merged(change: str) -> None:
    """Libraries that load them keep `nn.Linear`, without a weight or with another `forward`."""
    torch.manual_seed(0)
    module = nn.Module()
    for name in ("q_proj", "k_proj", "v_proj"):
        linear = nn.Linear(4, 4)
        if change == "no weight":
            del linear.weight
        elif change == "a forward of its own":
            linear.forward = lambda hidden: hidden
        else:
            linear.weight = nn.Parameter(torch.zeros(4, 4, dtype=torch.int8), requires_grad=False)
        module.add_module(name, linear)
    assert merge_projections(module) == 0
    assert pack_linears(module) == 0
