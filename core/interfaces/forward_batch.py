"""The tensors of one step: what the model and the attention backend read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch


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
            token, and the tensors here stand where they stood in each such step of B sequences before. Some may be
            padding: length 1, one row for all of them, whose page is one that no sequence has.
    """

    positions: npt.NDArray[np.int64]
    slots: torch.Tensor
    query_lens: npt.NDArray[np.int64]
    kv_lens: npt.NDArray[np.int64]
    rows: torch.Tensor
    page_table: torch.Tensor
    num_single: int
    page_size: int
    is_static: bool = False

    @property
    def device(self) -> torch.device:
        """Where the step runs."""
        return self.slots.device
