"""A step as numbers on the host: what its tensors are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.schedule.plan import BatchPlan

from .device.page_table import PageTable

Ints = npt.NDArray[np.int64]

NOT_IN_FLIGHT = -1


@dataclass(frozen=True, slots=True)
class StepNumbers:
    """What a step's tensors are made of, on the host: T tokens of B sequences.

    Attributes:
        known: token ids; 0 where one is in flight: [T].
        sources: the row whose last sampled token this one is, where it is in flight; else NOT_IN_FLIGHT: [T].
        positions, slots, rows, query_lens, kv_lens, num_single: as of `ForwardBatch`.
    """

    known: Ints
    sources: Ints
    positions: Ints
    slots: Ints
    rows: Ints
    query_lens: Ints
    kv_lens: Ints
    num_single: int

    @classmethod
    def of(cls, plan: BatchPlan, page_table: PageTable) -> StepNumbers:
        """Return the numbers of a plan of at least one sequence."""
        rows, starts, query_lens = plan.rows, plan.starts, plan.counts
        page_size = page_table.page_size
        if plan.num_single == len(rows):
            row_of_token, positions = rows, starts
        else:
            sequence_of_token = np.repeat(np.arange(len(rows)), query_lens)  # [T]
            first_token = np.cumsum(query_lens) - query_lens  # [B]
            row_of_token = rows[sequence_of_token]
            positions = np.arange(len(sequence_of_token)) - (first_token - starts)[sequence_of_token]
        page_of_token, offsets = np.divmod(positions, page_size)
        pages = page_table.host[row_of_token, page_of_token].astype(np.int64)
        known, sources = _tokens(plan)
        return cls(
            known=known,
            sources=sources,
            positions=positions,
            slots=pages * page_size + offsets,
            rows=rows,
            query_lens=query_lens,
            kv_lens=starts + query_lens,
            num_single=plan.num_single,
        )

    def padded(self, size: int, page_table: PageTable) -> StepNumbers:
        """Return the numbers of `size` sequences of one token, of which these are the first. The others are padding."""
        count = size - len(self.rows)

        def pad(values: Ints, filling: int) -> Ints:
            return np.concatenate([values, np.full(count, filling, dtype=np.int64)])

        return StepNumbers(
            known=pad(self.known, 0),
            sources=pad(self.sources, NOT_IN_FLIGHT),
            positions=pad(self.positions, 0),
            slots=pad(self.slots, page_table.padding_slot),
            rows=pad(self.rows, page_table.padding_row),
            query_lens=pad(self.query_lens, 1),
            kv_lens=pad(self.kv_lens, 1),
            num_single=size,
        )

    @classmethod
    def none(cls) -> StepNumbers:
        """Return the numbers of no sequence, to be padded."""
        nothing: Ints = np.empty(0, dtype=np.int64)
        return cls(nothing, nothing, nothing, nothing, nothing, nothing, nothing, num_single=0)

    def batch(
        self, slots: torch.Tensor, rows: torch.Tensor, page_table: PageTable, *, is_static: bool = False
    ) -> ForwardBatch:
        """Return the batch of these numbers.

        Args:
            slots, rows: on the device.
            page_table: whose copy on the device is right for these rows.
            is_static: as of `ForwardBatch`.
        """
        return ForwardBatch(
            positions=self.positions,
            slots=slots,
            query_lens=self.query_lens,
            kv_lens=self.kv_lens,
            rows=rows,
            page_table=page_table.tensor,
            num_single=self.num_single,
            page_size=page_table.page_size,
            is_static=is_static,
        )


def input_ids(known: torch.Tensor, sources: torch.Tensor, last_tokens: torch.Tensor) -> torch.Tensor:
    """Return the tokens of a step, [T], on the device.

    Args:
        known, sources: as of `StepNumbers`.
        last_tokens: what each row has sampled last: [rows].
    """
    return torch.where(sources == NOT_IN_FLIGHT, known, last_tokens[sources.clamp_min(0)])


def _tokens(plan: BatchPlan) -> tuple[Ints, Ints]:
    """Return `known` and `sources` of a plan."""
    known = np.zeros(plan.num_tokens, dtype=np.int64)
    sources = np.full(plan.num_tokens, NOT_IN_FLIGHT, dtype=np.int64)
    num, starts = plan.num_single, plan.starts.tolist()
    single = [seq.token_at(start) for seq, start in zip(plan.sequences, starts[:num], strict=False)]
    for place, token_id in enumerate(single):
        if token_id is None:
            sources[place] = plan.rows[place]
        else:
            known[place] = token_id
    first = num
    for seq, start, row, count in zip(
        plan.sequences[num:], starts[num:], plan.rows[num:].tolist(), plan.counts[num:].tolist(), strict=True
    ):
        ids = seq.tokens(start, start + count)
        known[first : first + len(ids)] = ids
        first += count
        if len(ids) < count:
            sources[first - 1] = row
    if plan.drafts:
        ends = np.cumsum(plan.counts)
        for place, tokens in plan.drafts.items():  # no token is in flight then
            known[ends[place] - len(tokens) : ends[place]] = tokens
            sources[ends[place] - 1] = NOT_IN_FLIGHT
    return known, sources
