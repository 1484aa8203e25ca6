"""Rows that a step samples, without a scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.base.step import Ints, RowCounts, RowStart
from llmfw.core.schedule.sequence import SequenceState
from llmfw.core.schedule.step_writer import count_tokens, start_row


@dataclass(frozen=True, slots=True)
class SampledRow:
    """A row that starts, its counted tokens if it has penalties, and the position of its next token."""

    start: RowStart
    counts: RowCounts | None
    position: int

    @classmethod
    def of(
        cls,
        sampling: SamplingParams,
        row: int,
        prompt: Sequence[int],
        output: Sequence[int] = (),
        eos: tuple[int, ...] = (),
    ) -> SampledRow:
        sampling = msgspec.structs.replace(sampling, max_tokens=100)
        request = Request(id=str(row), prompt=list(prompt), sampling=sampling, eos_token_ids=eos)
        seq = SequenceState(request, 0)
        seq.row = row
        for token in output:
            seq.append(token)
        counts = count_tokens(seq) if sampling.has_penalties else None
        return cls(start_row(seq), counts, seq.num_tokens)


def rows_of(rows: Sequence[SampledRow]) -> Ints:
    return np.array([each.start.row for each in rows], dtype=np.int64)


def positions_of(rows: Sequence[SampledRow]) -> Ints:
    return np.array([each.position for each in rows], dtype=np.int64)
