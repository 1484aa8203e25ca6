"""Which pages the sequences of a step have, in the form that FlashInfer reads: compressed rows.

Lengths are known on the host, and FlashInfer plans there, so they stay there: given tensors of the device, its `plan`
would wait for the device in every step. Page ids are known on the device alone, and are gathered there. Nothing here
waits for the device, and nothing here knows FlashInfer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core.engine.batch import ForwardBatch

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pages:
    """B sequences and their P pages. All tensors are int32; all but one are on the host, in pinned memory.

    Attributes:
        indptr: pages of sequence s are `indices[indptr[s]:indptr[s + 1]]`: [B + 1].
        indices: page ids, on the device: [P].
        last_page_len: tokens in each sequence's last page, from 1 to the page size: [B].
        kv_lens: tokens of each sequence: [B].
        query_indptr: the new tokens of sequence s are `query_indptr[s]` to `query_indptr[s + 1]`: [B + 1].
        most_queries: new tokens of the sequence that has the most.
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    last_page_len: torch.Tensor
    kv_lens: torch.Tensor
    query_indptr: torch.Tensor
    most_queries: int


def find_pages(batch: ForwardBatch, chosen: slice) -> Pages:
    """Return the pages of some sequences of a step.

    Args:
        batch: the step.
        chosen: which of its sequences, at least one.
    """
    kv_lens, query_lens = batch.kv_lens[chosen], batch.query_lens[chosen]
    counts = -(-kv_lens // batch.page_size)
    ends = _ends(counts)
    indptr, last_page_len, lens, query_indptr = _to_pinned(
        ends, kv_lens - (counts - 1) * batch.page_size, kv_lens, _ends(query_lens)
    )
    on_device = indptr.to(batch.device, non_blocking=True)
    indices = gather_pages(batch.page_table, batch.rows[chosen], on_device, int(ends[-1]))
    return Pages(indptr, indices, last_page_len, lens, query_indptr, int(query_lens.max()))


def one_page(device: torch.device) -> Pages:
    """Return a sequence of one token, in the first page."""
    indptr, length = _to_pinned(np.array([0, 1]), np.array([1]))
    return Pages(indptr, torch.zeros(1, dtype=torch.int32, device=device), length, length, indptr, 1)


def gather_pages(
    page_table: torch.Tensor,  # [R, most pages of a sequence]
    rows: torch.Tensor,  # [B]
    indptr: torch.Tensor,  # [B + 1], on the device
    total: int,
) -> torch.Tensor:
    """Return the first pages of each row, one row after the other, on the device: [total].

    `total` is what `indptr` ends with: known on the host, so that the size of the result need not be asked for.
    """
    places = torch.arange(total, dtype=torch.int32, device=page_table.device)
    owners = torch.searchsorted(indptr[1:], places, right=True)
    return page_table[rows[owners], places - indptr[owners]]


def _ends(counts: Ints) -> Ints:
    """Return where each part ends, after a zero: [len(counts) + 1]."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])


def _to_pinned(*arrays: Ints) -> tuple[torch.Tensor, ...]:
    """Return the same as int32, in pinned memory: only from there a copy to the device never waits for it.

    torch gives this memory out again once the copies out of it are done.
    """
    packed = torch.from_numpy(np.concatenate(arrays).astype(np.int32)).pin_memory()
    return packed.split([len(array) for array in arrays])
