"""What one step is to do, as plain data: from the scheduler to the model runner."""

from __future__ import annotations

from dataclasses import dataclass

from .sequence import SequenceState


@dataclass(frozen=True, slots=True)
class PlannedSequence:
    """One sequence's part of a step.

    Attributes:
        seq: the sequence. The runner reads its tokens and sampling parameters and changes nothing.
        row: its row of the page table and of the device's per-sequence state.
        start, count: tokens [start, start + count) are computed in this step.
        samples: the token after them is sampled, because these are the last ones.
        is_new: this is the first step since the sequence got its row.
        is_prefill: these are tokens of a prompt (or what a retraction threw away), not the last sampled one.
    """

    seq: SequenceState
    row: int
    start: int
    count: int
    samples: bool
    is_new: bool
    is_prefill: bool

    @property
    def end(self) -> int:
        """The first token that is not computed."""
        return self.start + self.count


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One step. Sequences with one token come first.

    Attributes:
        sequences: in the order in which their tokens are packed.
        num_single: how many of them have one token.
    """

    sequences: tuple[PlannedSequence, ...]
    num_single: int

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(planned.count for planned in self.sequences)
