"""The reference backend against attention written out in float64."""

from __future__ import annotations

import itertools

import pytest
import torch

from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.testing.attention import RAGGED, AttentionBackendTests
from llmfw.core.testing.attention_case import AttentionCase, make_layer
from llmfw.plugins.attention_torch.backend import TorchAttention


class TestTorchAttention(AttentionBackendTests):
    @pytest.fixture
    def backend(self) -> type[AttentionBackend]:
        return TorchAttention


def test_query_blocks_equal_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfw.plugins.attention_torch.backend.MAX_MASK_ELEMENTS", 200)
    AttentionCase(make_layer(), RAGGED, 1).check(TorchAttention, 1e-5)


def test_sequences_of_different_lengths_are_grouped_correctly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfw.plugins.attention_torch.backend.SMALL_GATHER", 1)
    lengths = list(itertools.product([0, 2, 90, 100, 300], [1]))
    AttentionCase(make_layer(sliding_window=50), lengths, 1).check(TorchAttention, 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("heads", [(2, 2), (9, 3), (8, 1)])
@pytest.mark.parametrize("length", [5, 37, 64, 120, 300])
def test_tokens_are_bit_identical_in_any_batch(
    length: int, heads: tuple[int, int], dtype: torch.dtype
) -> None:
    spec = make_layer(num_heads=heads[0], num_kv_heads=heads[1], head_dim=64)

    def run(*lengths: tuple[int, int]) -> torch.Tensor:
        return AttentionCase(spec, lengths, 1, dtype).run(TorchAttention)

    alone = run((length - 1, 1))
    crowded = run((length - 1, 1), (3, 1), (200, 1), (0, 9))
    assert torch.equal(crowded[:1], alone)
    for new in (2, 5, 33, 64, length):
        if new <= length:
            assert torch.equal(run((length - new, new))[-1:], alone), new
