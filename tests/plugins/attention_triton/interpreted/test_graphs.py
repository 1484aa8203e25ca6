"""Static steps, with a stand-in for CUDA graphs: launches are recorded once and replayed with the same arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from llmfw.core.kernels import kv_kernel
from llmfw.core.testing.attention_case import AttentionCase, make_layer
from llmfw.plugins.attention_triton import decode
from llmfw.plugins.attention_triton.backend import TritonAttention

Launch = Callable[[], None]


class RecordedKernel:
    """A kernel that runs as it does, and notes each launch."""

    def __init__(self, kernel: Any, launches: list[Launch]) -> None:
        self._kernel, self._launches = kernel, launches

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            self._launches.append(lambda: self._kernel[grid](*args, **kwargs))
            self._kernel[grid](*args, **kwargs)

        return launch


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Launch]]:
    """Return what is launched from now on by `forward`."""
    found: list[Launch] = []
    for module, name in ((kv_kernel, "write_kernel"), (decode, "attend_kernel"), (decode, "join_kernel")):
        monkeypatch.setattr(module, name, RecordedKernel(getattr(module, name), found))
    return found


def make_case(lengths: list[int], seed: int, window: int | None) -> AttentionCase:
    case = AttentionCase(
        make_layer(sliding_window=window), [(length - 1, 1) for length in lengths], 1, seed=seed
    )
    case.batch = replace(case.batch, is_static=True)
    return case


def put(case: AttentionCase, into: AttentionCase) -> None:
    """Copy what a step reads to where another one reads it. `into` has at least as many pages, and as wide a table."""
    for mine, other in ((case.storage.keys, into.storage.keys), (case.storage.values, into.storage.values)):
        other[0][: len(mine[0])].copy_(mine[0])
    into.batch.page_table[:, : case.batch.page_table.shape[1]].copy_(case.batch.page_table)
    for name in ("slots", "rows"):
        getattr(into.batch, name).copy_(getattr(case.batch, name))
    for name in ("query", "key", "value"):
        getattr(into, name).copy_(getattr(case, name))


@pytest.mark.parametrize("window", [None, 30])
def test_recorded_launches_are_correct_at_other_lengths(launches: list[Launch], window: int | None) -> None:
    captured = make_case([500, 70, 1], 0, window)
    built = captured.build(TritonAttention)
    built.plan(captured.batch)
    output = built.forward(captured.query, captured.key, captured.value, captured.spec, captured.batch)
    for seed, lengths in enumerate([[1, 1, 1], [64, 65, 300], [1, 450, 2], [500, 1, 1]]):
        case = make_case(lengths, seed, window)
        put(case, captured)
        built.plan(replace(captured.batch, kv_lens=case.batch.kv_lens, positions=case.batch.positions))
        output.fill_(torch.nan)
        for launch in launches:
            launch()
        torch.testing.assert_close(output.double(), case.expected(), atol=1e-5, rtol=1e-5)


def test_captured_sizes_keep_their_buffers(launches: list[Launch]) -> None:
    small, large = make_case([90, 200], 0, None), make_case([70] * 40, 1, None)
    built = small.build(TritonAttention)
    built.plan(small.batch)
    output = built.forward(small.query, small.key, small.value, small.spec, small.batch)
    first, wanted = list(launches), output.clone()
    built.plan(large.batch)  # a step of another size, after which the small one is replayed
    built.plan(small.batch)
    output.fill_(torch.nan)
    for launch in first:
        launch()
    assert torch.equal(output, wanted)
