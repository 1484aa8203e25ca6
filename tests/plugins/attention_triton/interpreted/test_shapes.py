"""Shapes at which tiles, pieces and pages begin and end, against float64."""

from __future__ import annotations

import pytest
import torch

from llmfw.core.testing.attention_case import AttentionCase, make_layer
from llmfw.plugins.attention_triton import decode
from llmfw.plugins.attention_triton.backend import TritonAttention
from llmfw.plugins.attention_triton.schedule import PIECE_STEP

from ....length import also

BORDERS = [(length - 1, 1) for length in (1, PIECE_STEP, PIECE_STEP + 1, 3 * PIECE_STEP, 5 * PIECE_STEP + 1)]
PROMPTS = [(0, 2), (PIECE_STEP - 1, 2), (PIECE_STEP, 70), (150, 45), (0, 129)]


@pytest.mark.parametrize("heads", [(8, 2), (20, 1), *also([(2, 2), (8, 1), (16, 1), (6, 2)])])
def test_any_head_ratio_works(heads: tuple[int, int]) -> None:
    spec = make_layer(num_heads=heads[0], num_kv_heads=heads[1])
    AttentionCase(spec, [*BORDERS[:3], (40, 30), (0, 5)], 1).check(TritonAttention, 1e-5)


@pytest.mark.parametrize("window", [None, PIECE_STEP, *also([1, 3, 100])])
@pytest.mark.parametrize("has_sinks", [False, True])
def test_decoding_works_across_piece_borders(window: int | None, has_sinks: bool) -> None:
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0]) if has_sinks else None
    spec = make_layer(sliding_window=window, has_sinks=has_sinks)
    AttentionCase(spec, BORDERS, 1).check(TritonAttention, 1e-5, sinks)


@pytest.mark.parametrize("window", [None, 3, *also([1, 100])])
def test_prompts_see_stored_keys_and_themselves(window: int | None) -> None:
    AttentionCase(make_layer(sliding_window=window), PROMPTS, 16).check(TritonAttention, 1e-5)


@pytest.mark.parametrize("page_size", [3, *also([2, 64])])
def test_any_page_size_works(page_size: int) -> None:
    AttentionCase(make_layer(), [*BORDERS[:3], (70, 20)], page_size).check(TritonAttention, 1e-5)


@pytest.mark.parametrize("dims", [(24, 40), (256, 256), *also([(8, 8), (64, 64), (128, 128), (192, 128)])])
def test_head_sizes_up_to_256_work(dims: tuple[int, int]) -> None:
    spec = make_layer(head_dim=dims[0], v_head_dim=dims[1], scale=0.05)
    AttentionCase(spec, [(0, 1), (90, 1), (33, 9)], 1).check(TritonAttention, 1e-5)


def test_a_long_sequence_among_short_is_split() -> None:
    lengths = [(10, 1), (900, 1), (3, 1), (64, 1)]
    AttentionCase(make_layer(softcap=3.0), lengths, 1).check(TritonAttention, 1e-5)


def test_tensors_may_be_views() -> None:
    case = AttentionCase(make_layer(), [(40, 1), (20, 9)], 1)
    apart = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in (case.query, case.key, case.value)]
    case.query, case.key, case.value = apart
    assert not case.query.is_contiguous()
    case.check(TritonAttention, 1e-5)


def test_layers_of_different_geometry_share_a_plan() -> None:
    wide = make_layer(num_heads=8, num_kv_heads=1, sliding_window=9)
    cases = [AttentionCase(spec, [(70, 1), (5, 1), (30, 20)], 1) for spec in (make_layer(), wide)]
    storage = cases[0].storage
    storage.keys.append(cases[1].storage.keys[0])
    storage.values.append(cases[1].storage.values[0])
    specs = [make_layer(), make_layer(index=1, num_heads=8, num_kv_heads=1, sliding_window=9)]
    backend = TritonAttention(specs, storage, TritonAttention.Options())
    backend.plan(cases[0].batch)
    for case, spec in zip(cases, specs, strict=True):
        found = backend.forward(case.query, case.key, case.value, spec, case.batch)
        torch.testing.assert_close(found.double(), case.expected(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("heads", [(12, 2), (3, 1)])
def test_pieces_of_many_sequences_are_joined(heads: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """With many sequences, a program of the second stage joins several query heads."""
    monkeypatch.setattr(decode, "MOST_SINGLE_JOINS", 2)
    spec = make_layer(num_heads=heads[0], num_kv_heads=heads[1], has_sinks=True)
    sinks = torch.linspace(-1, 2, heads[0])
    AttentionCase(spec, [(900, 1), (10, 1), (300, 1)], 1).check(TritonAttention, 1e-5, sinks)
