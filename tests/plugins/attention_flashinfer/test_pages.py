"""Pages of a step in compressed rows."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmfw.plugins.attention_flashinfer.pages import gather_pages


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=20),
    seed=st.integers(0, 99),
)
def test_gathered_pages_are_the_concatenated_rows(counts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = torch.from_numpy(rng.integers(0, 1000, (25, 9)).astype(np.int32))
    rows = torch.from_numpy(rng.permutation(25)[: len(counts)])
    indptr = torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32)
    found = gather_pages(table, rows, indptr, sum(counts))
    assert found.dtype == torch.int32
    expected = [table[row, :count] for row, count in zip(rows.tolist(), counts, strict=True)]
    assert torch.equal(found, torch.cat(expected))


def test_a_page_table_may_be_a_view() -> None:
    table = torch.arange(60, dtype=torch.int32).view(6, 10)[:, :4]
    indptr = torch.tensor([0, 2, 5], dtype=torch.int32)
    assert gather_pages(table, torch.tensor([4, 1]), indptr, 5).tolist() == [40, 41, 10, 11, 12]
