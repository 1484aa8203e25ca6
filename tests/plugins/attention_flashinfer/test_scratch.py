"""How much scratch memory FlashInfer takes, against numbers that its planner's rule gives."""

from __future__ import annotations

import pytest
import torch

from llmfw.core.testing.attention_case import make_layer
from llmfw.plugins.attention_flashinfer.kind import Kind
from llmfw.plugins.attention_flashinfer.scratch import (
    Scratch,
    bytes_for_graph,
    bytes_for_steps,
    bytes_of_buffers,
)


def kind(num_heads: int, num_kv_heads: int, head_dim: int = 128) -> Kind:
    return Kind.of(make_layer(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim))


@pytest.mark.parametrize(
    ("of", "size", "tiles", "tile"),
    [
        (kind(32, 8), 512, 512 * 4 // 16 + 511, 16),  # Llama-3.1-8B: 161 MiB, past FlashInfer's 128
        (kind(32, 8), 1, 2 * 132 // 8, 16),  # few sequences: two blocks for each processor
        (kind(64, 8), 256, 256 * 8 // 16 + 255, 16),
        (kind(24, 1), 64, 64 * 24 // 64 + 63 + 177, 64),
        (kind(128, 1, 256), 300, 300 * 128 // 64 + 299, 64),
        (kind(128, 1), 300, 300 + 299, 128),
    ],
)
def test_a_graph_has_scratch_for_every_tile(of: Kind, size: int, tiles: int, tile: int) -> None:
    values = of.num_heads * tiles * tile * of.head_dim * 4
    sums = of.num_heads * tiles * tile * 4
    assert 0 <= bytes_for_graph(of, 132, size) - values - sums <= 1 << 20


def test_few_query_heads_use_flashinfer_s_recommended_scratch() -> None:
    assert bytes_for_steps(kind(32, 8), 132) == 128 << 20
    assert bytes_for_steps(kind(64, 8), 132) > 128 << 20


def test_enlarging_scratch_keeps_older_memory_valid() -> None:
    scratch = Scratch(torch.device("cpu"), 100)
    first = scratch.at_least(50)
    assert scratch.at_least(100) is first
    second = scratch.at_least(101)
    assert second.nbytes == 200
    assert first.nbytes == 100
    assert not second.any()
    assert scratch.at_least(200) is second
    assert scratch.at_least(1000).nbytes == 1000


def test_all_buffers_are_counted_together() -> None:
    assert bytes_of_buffers(100, []) == 100
    assert bytes_of_buffers(100, [50, 101, 200, 1000, 3]) == 100 + 200 + 1000
