"""The reference backend against attention written out in float64."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from llmfw.core.attention import LayerSpec
from llmfw.core.engine.batch import ForwardBatch
from llmfw.core.engine.kv_storage import KVStorage
from llmfw.plugins.attention_torch.backend import TorchAttention

CPU = torch.device("cpu")
NUM_PAGES = {1: 1200, 16: 100}


def layer(**changes: object) -> LayerSpec:
    values = {
        "index": 0,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "v_head_dim": 8,
        "scale": 0.3,
    } | changes
    return LayerSpec(**values)  # type: ignore[arg-type]


def attend_in_float64(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, spec: LayerSpec, sinks: torch.Tensor | None
) -> torch.Tensor:
    """Return the attention of the last tokens of one sequence: query [t, H, D], keys and values [L, Hkv, …]."""
    shared = spec.num_heads // spec.num_kv_heads
    keys, values = (x.double().repeat_interleave(shared, dim=1) for x in (keys, values))
    scores = torch.einsum("thd,lhd->htl", query.double(), keys) * spec.scale
    if spec.softcap:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    places = torch.arange(len(keys))
    distance = places[len(keys) - len(query) :, None] - places[None, :]
    hidden = (distance < 0) | (distance >= (spec.sliding_window or len(keys)))
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, len(query), 1)], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : len(keys)]
    return torch.einsum("htl,lhd->thd", weights, values)


class Case:
    """Sequences with something stored already, and new tokens for each."""

    def __init__(
        self, spec: LayerSpec, lengths: list[tuple[int, int]], page_size: int, dtype: torch.dtype
    ) -> None:
        self.spec, self.lengths = spec, sorted(lengths, key=lambda pair: pair[1] > 1)
        generator = torch.Generator().manual_seed(0)
        self.storage = KVStorage([spec], NUM_PAGES[page_size], page_size, dtype, CPU)
        pages = np.random.default_rng(0).permutation(NUM_PAGES[page_size]).astype(np.int32)
        self.full, tables, slots, self.query, self.key, self.value = [], [], [], [], [], []
        for stored, new in self.lengths:
            total = stored + new
            count = -(-total // page_size)
            mine, pages = pages[:count], pages[count:]
            draw = [
                torch.randn(total, heads, size, generator=generator).to(dtype)
                for heads, size in (
                    (spec.num_heads, spec.head_dim),
                    (spec.num_kv_heads, spec.head_dim),
                    (spec.num_kv_heads, spec.v_head_dim),
                )
            ]
            places = np.arange(total)
            where = mine[places // page_size].astype(np.int64) * page_size + places % page_size
            self.storage.keys[0].view(-1, *draw[1].shape[1:])[where[:stored]] = draw[1][:stored]
            self.storage.values[0].view(-1, *draw[2].shape[1:])[where[:stored]] = draw[2][:stored]
            self.full.append(draw)
            tables.append(mine)
            slots.append(where[stored:])
            for packed, tensor in zip((self.query, self.key, self.value), draw, strict=True):
                packed.append(tensor[stored:])
        table = np.zeros((len(tables), max(map(len, tables))), dtype=np.int32)
        for row, mine in zip(table, tables, strict=True):
            row[: len(mine)] = mine
        new_lens = np.array([new for _, new in self.lengths], dtype=np.int64)
        self.batch = ForwardBatch(
            positions=np.concatenate([np.arange(stored, stored + new) for stored, new in self.lengths]),
            slots=torch.from_numpy(np.concatenate(slots)),
            query_lens=new_lens,
            kv_lens=np.array([stored + new for stored, new in self.lengths], dtype=np.int64),
            page_table=torch.from_numpy(table),
            num_single=int((new_lens == 1).sum()),
            page_size=page_size,
        )

    def run(self, sinks: torch.Tensor | None = None) -> torch.Tensor:
        backend = TorchAttention([self.spec], self.storage, TorchAttention.Options())
        backend.plan(self.batch)
        packed = [torch.cat(parts) for parts in (self.query, self.key, self.value)]
        return backend.forward(*packed, self.spec, self.batch, sinks)

    def check(self, sinks: torch.Tensor | None, tolerance: float) -> None:
        output = self.run(sinks)
        expected = [
            attend_in_float64(query[stored:], keys, values, self.spec, sinks)
            for (query, keys, values), (stored, _) in zip(self.full, self.lengths, strict=True)
        ]
        assert torch.allclose(output.double(), torch.cat(expected), atol=tolerance, rtol=tolerance)


RAGGED = [(0, 1), (1, 1), (15, 1), (16, 1), (200, 1), (0, 7), (0, 33), (16, 5), (31, 40), (3, 2)]


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize(
    "spec",
    [
        layer(),
        layer(num_heads=3, num_kv_heads=3),
        layer(num_heads=8, num_kv_heads=1),
        layer(v_head_dim=6),
        layer(sliding_window=5),
        layer(softcap=2.0),
        layer(softcap=2.0, sliding_window=20),
    ],
)
def test_equals_attention_in_float64(spec: LayerSpec, page_size: int) -> None:
    Case(spec, RAGGED, page_size, torch.float32).check(None, 1e-5)


@pytest.mark.parametrize("window", [None, 9])
def test_sinks_take_their_share(window: int | None) -> None:
    spec = layer(has_sinks=True, sliding_window=window)
    Case(spec, RAGGED, 1, torch.float32).check(torch.tensor([0.5, -1.0, 2.0, 0.0]), 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_differs_by_its_rounding(dtype: torch.dtype) -> None:
    Case(layer(), RAGGED, 16, dtype).check(None, 2e-2)


def test_blocks_of_queries_give_what_one_block_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfw.plugins.attention_torch.backend.MAX_MASK_ELEMENTS", 200)
    Case(layer(), RAGGED, 1, torch.float32).check(None, 1e-5)


def test_sequences_of_very_different_length_are_grouped_and_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfw.plugins.attention_torch.backend.SMALL_GATHER", 1)
    lengths = list(itertools.product([0, 2, 90, 100, 300], [1]))
    Case(layer(sliding_window=50), lengths, 1, torch.float32).check(None, 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("heads", [(2, 2), (9, 3), (8, 1)])
@pytest.mark.parametrize("length", [5, 37, 64, 120, 300])
def test_a_token_is_the_same_to_the_last_bit_whatever_it_is_computed_with(
    length: int, heads: tuple[int, int], dtype: torch.dtype
) -> None:
    spec = layer(num_heads=heads[0], num_kv_heads=heads[1], head_dim=64, v_head_dim=64)
    alone = Case(spec, [(length - 1, 1)], 1, dtype).run()
    crowded = Case(spec, [(length - 1, 1), (3, 1), (200, 1), (0, 9)], 1, dtype).run()
    assert torch.equal(crowded[:1], alone)
    for new in (2, 5, 33, 64, length):
        if new <= length:
            assert torch.equal(Case(spec, [(length - new, new)], 1, dtype).run()[-1:], alone), new
