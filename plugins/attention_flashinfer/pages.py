"""The pages of a step's sequences, in the compressed row format (CSR) that FlashInfer reads.

Lengths are known on the host and stay there, because FlashInfer plans on the host: given device tensors, its
`plan` would wait for the device in every step. Page ids are known only on the device, and are gathered there.
Nothing in this module waits for the device or depends on FlashInfer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core import ForwardBatch

Ints = npt.NDArray[np.int64]


class Rows(NamedTuple):
    """Row pointers and lengths of B sequences, all int32.

    Attributes:
        indptr: sequence s has entries `indptr[s]` to `indptr[s + 1] - 1` of `Pages.indices`: [B + 1].
        last_page_len: number of tokens in each sequence's last page, from 1 to the page size: [B].
        kv_lens: number of tokens of each sequence, cached and new: [B].
        query_indptr: sequence s has the new tokens `query_indptr[s]` to `query_indptr[s + 1] - 1`: [B + 1].
    """

    indptr: torch.Tensor
    last_page_len: torch.Tensor
    kv_lens: torch.Tensor
    query_indptr: torch.Tensor


@dataclass(frozen=True, slots=True)
class Pages:
    """B sequences and their P pages.

    Attributes:
        host: rows of the sequences, in pinned host memory.
        device: the same rows, on the device.
        indices: concatenated page ids of all sequences, on the device, int32: [P].
        most_queries: largest number of new tokens of any sequence.
    """

    host: Rows
    device: Rows
    indices: torch.Tensor
    most_queries: int


def find_pages(batch: ForwardBatch, chosen: slice) -> Pages:
    """Return the pages of some sequences of a step.

    Args:
        batch: forward batch of the step.
        chosen: sequences to take, at least one.
    """
    kv_lens, query_lens = batch.kv_lens[chosen], batch.query_lens[chosen]
    counts = -(-kv_lens // batch.page_size)
    ends = _ends(counts)
    last_page_len = kv_lens - (counts - 1) * batch.page_size
    host, device = _bring(batch.device, ends, last_page_len, kv_lens, _ends(query_lens))
    indices = gather_pages(batch.page_table, batch.rows[chosen], device.indptr, int(ends[-1]))
    return Pages(host, device, indices, int(query_lens.max()))


def one_page(device: torch.device) -> Pages:
    """Return the pages of a dummy batch: one sequence with one token, in page 0."""
    ends, one = np.array([0, 1]), np.array([1])
    return Pages(*_bring(device, ends, one, one, ends), torch.zeros(1, dtype=torch.int32, device=device), 1)


def gather_pages(
    page_table: torch.Tensor,  # [R, most pages of a sequence]
    rows: torch.Tensor,  # [B]
    indptr: torch.Tensor,  # [B + 1], on the device
    total: int,
) -> torch.Tensor:
    """Return the page ids of each row, concatenated, on the device: [total].

    `total` equals `indptr[-1]`. The caller passes this number, because reading it from the device would wait.
    """
    places = torch.arange(total, dtype=torch.int32, device=page_table.device)
    owners = torch.searchsorted(indptr[1:], places, right=True)
    return page_table[rows[owners], places - indptr[owners]]


def _ends(counts: Ints) -> Ints:
    """Return the cumulative sums of `counts` with a leading zero (indptr): [len(counts) + 1]."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])


def _bring(device: torch.device, *columns: Ints) -> tuple[Rows, Rows]:
    """Return the columns as `Rows` on the host, and as `Rows` on the device, with a single copy.

    A copy is asynchronous only from pinned memory. torch reuses that memory once the copy is done.
    """
    packed = torch.from_numpy(np.concatenate(columns).astype(np.int32)).pin_memory()
    sizes = [len(column) for column in columns]
    return Rows(*packed.split(sizes)), Rows(*packed.to(device, non_blocking=True).split(sizes))
