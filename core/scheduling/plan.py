"""What one step is to do, and what came of it, as plain data: between the scheduler and the model runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..request import TokenLogprob
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


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a launched plan gave.

    Attributes:
        token_ids: sampled tokens, one for each planned sequence that samples, in order.
        logprobs: of these tokens, for requests that ask, by their id.
        prompt_logprobs: of the prompt tokens that follow the computed ones, for requests that ask, by their id.
    """

    token_ids: Sequence[int]
    logprobs: Mapping[str, TokenLogprob] = field(default_factory=dict)
    prompt_logprobs: Mapping[str, Sequence[TokenLogprob]] = field(default_factory=dict)
