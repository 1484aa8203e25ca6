"""Plans made of parts, for what only looks at their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from llmfw.core.base.step import StepInput
from llmfw.core.schedule.plan import BatchPlan, PlannedSequence


def plan_of(parts: Iterable[PlannedSequence]) -> BatchPlan:
    """Return the plan of these parts, those with one token first; all tokens are 0."""
    parts = sorted(parts, key=lambda part: part.count > 1)
    num_tokens = sum(part.count for part in parts)

    def ints(values: Sequence[int]) -> np.ndarray:
        return np.array(values, dtype=np.int64)

    step = StepInput(
        tokens=np.zeros(num_tokens, dtype=np.int64),
        sources=np.full(num_tokens, -1),
        rows=ints([part.row for part in parts]),
        starts=ints([part.start for part in parts]),
        counts=ints([part.count for part in parts]),
        num_sampled=ints([part.samples + len(part.drafts) for part in parts]),
        num_single=sum(part.count == 1 for part in parts),
        num_sampling=sum(part.samples for part in parts),
    )
    return BatchPlan(
        step,
        [part.seq for part in parts],
        ints([part.seq.index for part in parts]),
        ints([part.is_new for part in parts]) > 0,
        ints([part.is_prefill for part in parts]) > 0,
        {place: part.drafts for place, part in enumerate(parts) if part.drafts},
    )
