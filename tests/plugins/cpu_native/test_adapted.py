"""Linear layers with room for adapters have native products, beside which adapters add their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from llmfw.core.model.adapters.adapted_linear import AdaptedLinear
from llmfw.core.model.adapters.adapter_files import AdapterWeights
from llmfw.core.model.adapters.adapter_slots import AdapterSlots, add_slots
from llmfw.core.model.adapters.low_rank import LowRank
from llmfw.plugins.cpu_native.layers import NativePass
from llmfw.plugins.cpu_native.library import why_not
from llmfw.plugins.cpu_native.weights import NativeLinear

from ...length import also_each
from .test_layers import TOLERANCES, logits, make

pytestmark = pytest.mark.skipif(why_not(torch.bfloat16) is not None, reason=str(why_not(torch.bfloat16)))

LENGTHS = [1, 3, 1, 12]
RANK = 4


class Sender:
    """Sends arrays to the CPU."""

    def send(self, *arrays: npt.NDArray[Any]) -> list[torch.Tensor]:
        return [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]


def with_adapter(variant: str, dtype: torch.dtype) -> tuple[nn.Module, AdapterSlots]:
    """Return a model with room for two adapters, and an adapter of all layers in the second slot."""
    model = make(variant, dtype)
    slots = add_slots(model, 2, RANK, model.config.vocab_size, dtype)
    generator = torch.Generator().manual_seed(2)

    def random(*shape: int) -> torch.Tensor:
        return (0.3 * torch.randn(shape, generator=generator)).to(dtype)

    layers = {
        name: LowRank(random(RANK, size[0]), random(RANK, size[1])) for name, size in slots.base.sizes.items()
    }
    slots.write(1, AdapterWeights(layers, RANK, "digest"))
    return model, slots


def begin(slots: AdapterSlots, numbers: list[int]) -> None:
    """Set the number of each sequence's slot, from 1; 0: no adapter."""
    adapters = np.array(numbers, dtype=np.int64)
    slots.begin(adapters if adapters.any() else adapters[:0], np.array(LENGTHS), Sender())


@pytest.mark.parametrize(
    ("variant", "dtype"),
    [
        ("llama", torch.float32),
        *also_each(
            ("llama", torch.bfloat16), ("biases everywhere", torch.float32), ("uneven widths", torch.float32)
        ),
    ],
)
@torch.inference_mode()
def test_adapters_run_beside_native_products(variant: str, dtype: torch.dtype) -> None:
    model, slots = with_adapter(variant, dtype)
    cases = ([0, 0, 0, 0], [0, 2, 0, 2], [2, 2, 2, 2])
    expected = []
    for numbers in cases:
        begin(slots, numbers)
        expected.append(logits(model, LENGTHS))
    adapted = [each for each in model.modules() if isinstance(each, AdaptedLinear)]
    assert NativePass().apply(model) >= len(adapted) > 0
    assert all(isinstance(each.base, NativeLinear) for each in adapted)
    found = []
    for numbers in cases:
        begin(slots, numbers)
        found.append(logits(model, LENGTHS))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=20 * TOLERANCES[dtype], rtol=TOLERANCES[dtype])
    owners = np.repeat(np.array(cases[1]), LENGTHS)
    assert torch.equal(found[0][owners == 0], found[1][owners == 0])  # the base's rows, bit for bit
    assert not torch.allclose(found[0][owners == 2], found[1][owners == 2], atol=1e-2)
