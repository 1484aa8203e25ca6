"""Which pages the sequences of a step have, in the form that FlashInfer reads: compressed rows.

Lengths are known on the host, and FlashInfer plans there, so they stay there: given tensors of the device, its `plan`
would wait for the device in every step. Page ids are known on the device alone, and are gathered there. Nothing here
waits for the device, and nothing here knows FlashInfer.
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
    """B sequences, int32.

    Attributes:
        indptr: pages of sequence s are those from `indptr[s]` to `indptr[s + 1]`: [B + 1].
        last_page_len: tokens in each sequence's last page, from 1 to the page size: [B].
        kv_lens: tokens of each sequence: [B].
        query_indptr: the new tokens of sequence s are those from `query_indptr[s]` to `query_indptr[s + 1]`: [B + 1].
    """

    indptr: torch.Tensor
    last_page_len: torch.Tensor
    kv_lens: torch.Tensor
    query_indptr: torch.Tensor


@dataclass(frozen=True, slots=True)
class Pages:
    """B sequences and their P pages.

    Attributes:
        host: the sequences, in pinned memory.
        device: the same, on the device.
        indices: page ids of all sequences, one after the other, on the device, int32: [P].
        most_queries: new tokens of the sequence that has the most.
    """

    host: Rows
    device: Rows
    indices: torch.Tensor
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
    last_page_len = kv_lens - (counts - 1) * batch.page_size
    host, device = _bring(batch.device, ends, last_page_len, kv_lens, _ends(query_lens))
    indices = gather_pages(batch.page_table, batch.rows[chosen], device.indptr, int(ends[-1]))
    return Pages(host, device, indices, int(query_lens.max()))


def one_page(device: torch.device) -> Pages:
    """Return a sequence of one token, in the first page."""
    ends, one = np.array([0, 1]), np.array([1])
    return Pages(*_bring(device, ends, one, one, ends), torch.zeros(1, dtype=torch.int32, device=device), 1)


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


def _bring(device: torch.device, *columns: Ints) -> tuple[Rows, Rows]:
    """Return columns of `Rows` as tensors on the host and on the device, brought there by one copy.

    Only from pinned memory a copy never waits for the device. torch gives that memory out again once it is done.
    """
    packed = torch.from_numpy(np.concatenate(columns).astype(np.int32)).pin_memory()
    sizes = [len(column) for column in columns]
    return Rows(*packed.split(sizes)), Rows(*packed.to(device, non_blocking=True).split(sizes))
