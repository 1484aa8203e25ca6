"""Linear biases are exact to twice the precision of a dtype, at any position, and survive any dtype of the KV cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from llmfw.plugins.adapters_families.alibi import LinearBias, PositionDigits

SLOPES = torch.tensor([0.7071067811865476, 0.00390625, 0.1])
POSITIONS = (0, 1, 7, 8, 255, 256, 4095, 30_583, 30_584, 65_535, 300_000, 489_335)
SCALING = 0.2


class Recording:
    """Keeps the queries and keys of the last call of attention."""

    def __call__(self, module: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any) -> Any:
        assert kwargs == {"scaling": SCALING}
        self.query, self.key = query, key
        return value.transpose(1, 2)


def products(dtype: torch.dtype, stored_as: torch.dtype, kv_heads: int = 3) -> torch.Tensor:
    """Return what the biases add to the scores of the last position, [heads, positions], in float64."""
    model, recording = nn.Identity(), Recording()
    positions = PositionDigits(model)
    positions(model, (), {"position_ids": torch.tensor([POSITIONS])})
    bias = LinearBias(recording, SLOPES, SCALING, positions)
    zeros = torch.zeros(1, 3, len(POSITIONS), 8, dtype=dtype)
    bias(model, zeros, zeros[:, :kv_heads], zeros[:, :kv_heads])
    key = recording.key.to(stored_as).double().expand(-1, 3, -1, -1)
    return (recording.query[0, :, -1:].double() * key[0]).sum(2) * SCALING


@pytest.mark.parametrize(
    ("dtype", "bits"), [(torch.float32, 46), (torch.bfloat16, 15), (torch.float16, 15)], ids=str
)
def test_a_bias_is_slope_times_position(dtype: torch.dtype, bits: int) -> None:
    expected = SLOPES.double()[:, None] * torch.tensor(POSITIONS).double()
    torch.testing.assert_close(products(dtype, dtype), expected, rtol=2.0**-bits, atol=1e-9)


@pytest.mark.parametrize("stored_as", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_digits_are_exact_in_small_dtypes(stored_as: torch.dtype) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        assert torch.equal(products(dtype, stored_as), products(dtype, dtype))


def test_heads_may_share_a_key() -> None:
    assert torch.equal(
        products(torch.float32, torch.float32, kv_heads=1), products(torch.float32, torch.float32)
    )


def test_positions_are_read_again_in_each_call() -> None:
    """In a CUDA graph, they come in the same tensor."""
    model = nn.Identity()
    positions, given = PositionDigits(model), torch.tensor([[1, 2]])
    positions(model, (), {"position_ids": given})
    given += 16
    positions(model, (), {"position_ids": given})
    assert positions.digits.tolist() == [[1, 1, 0, 0, 0], [2, 1, 0, 0, 0]]
