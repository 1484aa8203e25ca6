"""The tensors of one step, which the model and the attention backend read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """T tokens of B sequences, packed. The first `num_single` sequences have one token each.

    Attributes:
        positions: position of each token in its sequence, on the host: [T].
        slots: slot of each token's key and value, `page * page_size + offset`, on the device: [T].
        query_lens: number of tokens of each sequence in this step, on the host: [B].
        kv_lens: length of each sequence, including its tokens of this step, on the host: [B].
        rows: each sequence's row of the page table, on the device: [B].
        page_table: pages of each row, on the device: [R, maximum number of pages of a sequence]. Entries
            beyond a sequence's own pages may be any valid page.
        num_single: number of sequences with one token in this step; they come first.
        page_size: number of tokens in one page.
        is_static: whether this step runs in a CUDA graph (see `AttentionBackend.graph_unsupported`). If so,
            every sequence has one token, and these tensors have the same addresses in all such steps of B
            sequences. Some sequences may be padding: padding has length 1, and shares one row, whose page
            belongs to no sequence.
        ends: position after the last token that each token attends to, on the host: [T]; never beyond the
            tokens of its sequence in this step. None, except for backends that can look ahead
            (`AttentionBackend.looks_ahead`): each token attends to no later token.
        selected: positions in its sequence to which each token attends, in any order, on the device: [T, K]. Those after
            the token, and negative ones, count for nothing. None, except for layers that select
            (`LayerSpec.selects`): each token attends to all earlier tokens. In `AttentionBackend.plan`, always None.
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
    ends: npt.NDArray[np.int64] | None = None
    selected: torch.Tensor | None = None

    @property
    def device(self) -> torch.device:
        """Device on which the step runs."""
        return self.slots.device
