"""What CUDA graphs need of the FlashInfer backend, with a stand-in for FlashInfer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.testing.attention_case import AttentionCase
from llmfw.plugins.attention_flashinfer.backend import FlashInferAttention
from llmfw.plugins.attention_flashinfer.planner import PLAN_BYTES
from llmfw.plugins.attention_flashinfer.scratch import Scratch

from .test_backend import called, single_tokens

Backend = type[FlashInferAttention]
BUFFERS = ("paged_kv_indptr_buffer", "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer")


def static(case: AttentionCase, size: int) -> AttentionCase:
    """Return the case with the first sequences of its step alone, as a step of a CUDA graph."""
    batch = case.batch
    case.batch = replace(
        batch,
        positions=batch.positions[:size],
        slots=batch.slots[:size],
        query_lens=batch.query_lens[:size],
        kv_lens=batch.kv_lens[:size],
        rows=batch.rows[:size],
        num_single=size,
        is_static=True,
    )
    case.query, case.key, case.value = case.query[:size], case.key[:size], case.value[:size]
    return case


def graph_wrappers() -> list[dict[str, torch.Tensor]]:
    """Return what each wrapper for a CUDA graph was made with."""
    return [given for given in called("DecodeWithPagedKVCacheWrapper.__init__") if given["use_cuda_graph"]]


def replay(built: AttentionBackend, case: AttentionCase) -> torch.Tensor:
    """Plan a step and run what was captured, as a graph does: by `forward`, whose reads stay where they are."""
    built.plan(case.batch)
    return case.forward(built).double()


def test_each_graph_size_has_a_wrapper(flashinfer: Backend) -> None:
    """It is planned again for each replay."""
    whole = single_tokens(3, 40, 8, 1, page_size=4)
    built = whole.build(flashinfer)
    for size in (4, 2, 4, 2, 4):
        case = static(single_tokens(3, 40, 8, 1, page_size=4), size)
        case.storage.keys[0].copy_(whole.storage.keys[0])
        case.storage = whole.storage
        torch.testing.assert_close(replay(built, case), case.expected()[:size], atol=1e-5, rtol=1e-5)
    assert [len(given["paged_kv_last_page_len_buffer"]) for given in graph_wrappers()] == [4, 2]
    assert len(called("fast_decode_plan")) == 3


def test_graph_inputs_keep_their_addresses(flashinfer: Backend) -> None:
    short, long = (single_tokens(*lengths, page_size=4) for lengths in ((1, 1, 1), (90, 5, 37)))
    built = short.build(flashinfer)
    built.storage = long.storage
    table = torch.zeros((9, 30), dtype=torch.int32)
    wrappers = []
    for case in (short, long, short):
        table[:] = 0
        table[: len(case.batch.page_table), : case.batch.page_table.shape[1]] = case.batch.page_table
        built.plan(replace(case.batch, page_table=table, is_static=True))
        wrappers.append(next(iter(built._decode.values())))
        pages = wrappers[-1].pages
        counts = [-(-length // 4) for length in case.batch.kv_lens.tolist()]
        assert pages[0].tolist() == [sum(counts[:i]) for i in range(4)]
        rows = case.batch.rows.tolist()
        expected = [table[row, place] for row, n in zip(rows, counts, strict=True) for place in range(n)]
        assert pages[1][: sum(counts)].tolist() == expected
        assert pages[2].tolist() == [(length - 1) % 4 + 1 for length in case.batch.kv_lens.tolist()]
    assert wrappers[0] is wrappers[1] is wrappers[2]
    [given] = graph_wrappers()
    assert wrappers[0].pages == tuple(given[name] for name in BUFFERS)


def test_smaller_graphs_share_the_page_id_buffer(flashinfer: Backend) -> None:
    whole = single_tokens(3, 4, 5, 6)
    built = whole.build(flashinfer)
    for size in (4, 3, 1):
        built.plan(static(single_tokens(3, 4, 5, 6), size).batch)
    assert len({given["paged_kv_indices_buffer"].data_ptr() for given in graph_wrappers()}) == 1
    assert len({given["paged_kv_indptr_buffer"].data_ptr() for given in graph_wrappers()}) == 3


def test_page_id_buffers_hold_the_maximum_pages(flashinfer: Backend) -> None:
    built = single_tokens(3, 4, 5, 6).build(flashinfer)
    for size in (1, 2, 3, 4):
        case = static(single_tokens(3, 4, 5, 6), size)
        built.plan(case.batch)
    most = case.batch.page_table.shape[1]
    assert [len(given["paged_kv_indices_buffer"]) for given in graph_wrappers()] == [
        most,
        2 * most,
        4 * most,
        4 * most,
    ]


def test_decode_plans_share_an_integer_workspace(flashinfer: Backend) -> None:
    """Prompts have another one."""
    case = single_tokens(3, 4, 5, 6)
    built = case.build(flashinfer)
    built.plan(case.batch)
    for size in (4, 2):
        built.plan(static(single_tokens(3, 4, 5, 6), size).batch)
    given = called("reset_workspace_buffer")
    assert len(given) == 3
    assert len({call["int_workspace_buffer"].data_ptr() for call in given}) == 1
    assert {call["int_workspace_buffer"].data_ptr() for call in given}.isdisjoint(
        wrapper["self"].integers.data_ptr() for wrapper in called("PrefillWithPagedKVCacheWrapper.__init__")
    )


def test_a_graph_gets_enough_scratch_memory(flashinfer: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    case = static(single_tokens(*[2] * 40, num_heads=8), 40)
    built = case.build(flashinfer)
    built.plan(case.batch)
    eager, graph = (given["float_workspace_buffer"] for given in called("reset_workspace_buffer"))
    tiles = -(-40 * 4 // 16) + 39
    assert graph.nbytes >= 8 * tiles * 16 * (64 + 1) * 4 > eager.nbytes - (1 << 20)


@pytest.mark.parametrize("sizes", [[1, 2, 4], []])
def test_the_plan_counts_what_is_allocated(
    flashinfer: Backend, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    scratch = []
    allocate = Scratch._allocate
    monkeypatch.setattr(Scratch, "_allocate", lambda self, size: scratch.append(size) or allocate(self, size))
    whole = single_tokens(3, 40, 8, 1)
    built = whole.build(flashinfer)
    for size in reversed(sizes):
        built.plan(static(single_tokens(3, 40, 8, 1), size).batch)
    ids = {
        given["paged_kv_indices_buffer"].data_ptr(): given["paged_kv_indices_buffer"]
        for given in graph_wrappers()
    }
    planned = flashinfer.step_bytes(
        [whole.spec],
        flashinfer.Options(),
        "cpu",
        num_sequences=4,
        num_pages=whole.batch.page_table.shape[1],
        graph_sizes=sizes,
    )
    assert planned == sum(scratch) + sum(tensor.nbytes for tensor in ids.values()) + PLAN_BYTES
