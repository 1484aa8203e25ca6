"""The tensors of one step: what the model and the attention backend read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ..scheduling.plan import BatchPlan
from .page_table import PageTable

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """T tokens of B sequences, packed. The first `num_single` sequences have one token each.

    Attributes:
        positions: place of each token in its sequence, on the host: [T].
        slots: where each token's key and value go, `page * page_size + offset`, on the device: [T].
        query_lens: tokens of each sequence in this step, on the host: [B].
        kv_lens: tokens of each sequence up to and including this step's, on the host: [B].
        rows: which row of the page table is each sequence's, on the device: [B].
        page_table: pages, on the device: [R, most pages of a sequence]; beyond a sequence's own: any valid page.
        num_single: how many sequences, from the first on, have one token.
        page_size: tokens in one page.
        is_static: this step is one of a CUDA graph (see `AttentionBackend.graph_unsupported`): every sequence has one
            token, and the tensors here stand where they stood in each such step of B sequences before.
    """

    positions: Ints
    slots: torch.Tensor
    query_lens: Ints
    kv_lens: Ints
    rows: torch.Tensor
    page_table: torch.Tensor
    num_single: int
    page_size: int
    is_static: bool = False

    @property
    def device(self) -> torch.device:
        """Where the step runs."""
        return self.slots.device


def make_batch(plan: BatchPlan, page_table: PageTable, page_size: int, device: torch.device) -> ForwardBatch:
    """Turn a plan into tensors.

    Args:
        plan: at least one sequence.
        page_table: brought up to date here.
        page_size: tokens in one page.
        device: where the step runs.
    """
    rows, starts, query_lens = plan.rows, plan.starts, plan.counts
    kv_lens = starts + query_lens
    sequence_of_token = np.repeat(np.arange(len(rows)), query_lens)  # [T]
    first_token = np.cumsum(query_lens) - query_lens  # [B]
    positions = np.arange(len(sequence_of_token)) - (first_token - starts)[sequence_of_token]
    pages = page_table.host[rows[sequence_of_token], positions // page_size].astype(np.int64)
    slots = pages * page_size + positions % page_size
    page_table.update(rows, kv_lens)
    return ForwardBatch(
        positions=positions,
        slots=torch.from_numpy(slots).to(device, non_blocking=True),
        query_lens=query_lens,
        kv_lens=kv_lens,
        rows=torch.from_numpy(rows).to(device, non_blocking=True),
        page_table=page_table.tensor,
        num_single=plan.num_single,
        page_size=page_size,
    )
