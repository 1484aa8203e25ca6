"""Two backends that share a step, against one backend and against float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from llmfw.core.interfaces.attention import AttentionBackend, LayerSpec
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.model.attention.split_attention import SplitAttention
from llmfw.core.plugin.returned import WrongReturnError
from llmfw.core.testing.attention import RAGGED, AttentionBackendTests
from llmfw.core.testing.attention_case import AttentionCase, make_layer
from llmfw.plugins.attention_torch.backend import TorchAttention

from ....doubles.static_attention import StaticAttention

SINGLE, PROMPTS = [(3, 1), (40, 1)], [(0, 7), (16, 5)]


class Planned(TorchAttention):
    """Keeps the batches that it plans, and does with them what `write` does."""

    def __init__(self, layers: Sequence[LayerSpec], storage: KVStorage, options: Any) -> None:
        super().__init__(layers, storage, options)
        self.batches: list[ForwardBatch] = []
        self.writes_pages = False

    def plan(self, batch: ForwardBatch) -> None:
        super().plan(batch)
        self.batches.append(batch)
        if self.writes_pages:
            batch.page_table.add_(0)


class SplitTorch(SplitAttention):
    """Two backends of torch's."""

    decode: Planned
    prefill: Planned

    def __init__(self, layers: Sequence[LayerSpec], storage: KVStorage, options: Any) -> None:
        super().__init__(Planned(layers, storage, options), Planned(layers, storage, options))


class TestSplitAttention(AttentionBackendTests):
    @pytest.fixture
    def backend(self) -> type[AttentionBackend]:
        return SplitTorch


def make(*lengths: tuple[int, int]) -> tuple[AttentionCase, SplitTorch]:
    case = AttentionCase(make_layer(), lengths, 4)
    return case, SplitTorch([case.spec], case.storage, SplitTorch.Options())


@pytest.mark.parametrize(
    ("lengths", "expected"), [(SINGLE, (1, 0)), (PROMPTS, (0, 1)), (SINGLE + PROMPTS, (1, 1))]
)
def test_each_backend_plans_its_own_sequences(
    lengths: list[tuple[int, int]], expected: tuple[int, int]
) -> None:
    case, built = make(*lengths)
    built.plan(case.batch)
    assert (len(built.decode.batches), len(built.prefill.batches)) == expected
    assert all(len(batch.query_lens) == batch.num_single for batch in built.decode.batches)
    assert all(batch.num_single == 0 for batch in built.prefill.batches)
    whole = {SINGLE[0]: built.decode, PROMPTS[0]: built.prefill}
    assert built.planned is (built if expected == (1, 1) else whole[lengths[0]])


@pytest.mark.parametrize("sinks", [None, torch.randn(4)])
def test_a_mixed_step_equals_one_backend(sinks: torch.Tensor | None) -> None:
    cases = [AttentionCase(make_layer(has_sinks=sinks is not None), RAGGED, 4) for _ in range(2)]
    one, split = (
        case.run(backend, sinks) for case, backend in zip(cases, (TorchAttention, SplitTorch), strict=True)
    )
    torch.testing.assert_close(split, one, rtol=0, atol=0)
    assert torch.equal(cases[0].storage.keys[0], cases[1].storage.keys[0])


@pytest.mark.parametrize("lengths", [PROMPTS, SINGLE + PROMPTS])
def test_images_go_to_the_third_backend(lengths: list[tuple[int, int]]) -> None:
    """Steps whose tokens look ahead go to the backend that can; all others do not."""
    case = AttentionCase(make_layer(), lengths, 4)
    args = [case.spec], case.storage, TorchAttention.Options()
    usual, ahead = Planned(*args), Planned(*args)
    built = SplitAttention(usual, usual, ahead)
    built.plan(case.batch)
    assert (len(usual.batches), len(ahead.batches)) == (1, 0)
    case.look_ahead()
    built.plan(case.batch)
    assert len(ahead.batches) == 1
    assert all(batch.ends is None for batch in usual.batches)
    torch.testing.assert_close(case.forward(built).double(), case.expected(), rtol=1e-5, atol=1e-5)


def test_graphs_are_the_decode_backends() -> None:
    case = AttentionCase(make_layer(), SINGLE, 4)
    args = [case.spec], case.storage, TorchAttention.Options()
    static, other = StaticAttention(*args), Planned(*args)
    built = SplitAttention(static, other)
    assert built.graph_unsupported() is None
    assert SplitAttention(other, static).graph_unsupported() is not None
    built.plan(replace(case.batch, is_static=True))
    assert not other.batches


def test_the_suspect_is_who_wrote_pages() -> None:
    case, built = make(*SINGLE, *PROMPTS)
    built.plan(case.batch)
    assert built.suspect is built.prefill  # called last
    built.decode.writes_pages = True
    built.plan(case.batch)
    case.forward(built)
    assert built.suspect is built.decode
    built.decode.writes_pages = False
    built.plan(case.batch)
    assert built.suspect is built.prefill


def test_a_wrong_output_names_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    case, built = make(*SINGLE, *PROMPTS)
    monkeypatch.setattr(built.decode, "forward", lambda *args: torch.zeros(3))
    built.plan(case.batch)
    with pytest.raises(WrongReturnError, match=r"returned torch.float32 \[3\] in place of"):
        case.forward(built)
    assert built.suspect is built.decode
