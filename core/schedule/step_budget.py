"""Tracks how many more prompt tokens one step may hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .deferral import Limits
from .sequence import SequenceState


@dataclass(slots=True)
class StepBudget:
    """Rest of a lane's prompt-token budget in one step.

    `StepPlanner` creates one for each lane and step, and calls `take` for each piece that it plans.

    Attributes:
        limits: limits of the lane in this step.
        tokens: number of prompt tokens left in the budget.
        piece: number of these tokens that split prompts (`SequenceState.is_cut`) may still compute while
            other sequences decode; None: no limit.
        chunked: whether a prompt may be split over several steps; if not, each prompt is computed in full.
        may_exceed: whether a single prompt may exceed the budget. Used only if prompts are not split.
        score_cost: cost, in tokens, of a prompt token whose log probability is requested. Other tokens
            cost 1.
        weighs_piece: whether `take` subtracts the cost of the computed tokens from `piece`; if not, it
            subtracts their number.
    """

    limits: Limits
    tokens: int
    piece: int | None
    chunked: bool
    may_exceed: bool
    score_cost: float = 1.0
    weighs_piece: bool = False

    @property
    def is_spent(self) -> bool:
        """Whether the budget has no tokens left for another sequence."""
        return self.tokens - self.limits.tokens_per_place <= 0

    def take(self, seq: SequenceState, count: int) -> None:
        """Subtract `count` tokens of a sequence from the budget."""
        self.tokens -= math.ceil(count * self._cost(seq)) + self.limits.tokens_per_place
        if seq.is_cut and self.piece is not None:
            self.piece -= math.ceil(count * self._cost(seq)) if self.weighs_piece else count

    def next_piece(self, seq: SequenceState) -> int:
        """Return how many tokens a running sequence may compute; 0 or less if it must wait."""
        count = self._fitting(seq)
        if self.chunked or count <= 0 or count == seq.num_remaining:
            return count
        return seq.num_remaining if self.may_exceed else 0

    def first_piece(self, seq: SequenceState) -> int | None:
        """Return how many tokens a newly admitted sequence computes; None if it must run in its own step."""
        count = self._fitting(seq)
        if self.chunked or count == seq.num_remaining:
            return max(count, 0)
        is_first = self.tokens == self.limits.tokens
        return seq.num_remaining if is_first and self.may_exceed else None

    def _fitting(self, seq: SequenceState) -> int:
        """Return how many of a sequence's next tokens fit, if its prompt may be split; may be negative."""
        most = min(seq.num_remaining, self._affordable(seq, self.tokens - self.limits.tokens_per_place))
        if not seq.is_cut or self.piece is None:
            return most
        return min(most, self._affordable(seq, self.piece) if self.weighs_piece else self.piece)

    def _affordable(self, seq: SequenceState, tokens: int) -> int:
        cost = self._cost(seq)
        return tokens if cost == 1 or tokens <= 0 else max(1, int(tokens / cost))

    def _cost(self, seq: SequenceState) -> float:
        prompt = seq.prompt_logprobs
        return 1.0 if prompt is None or prompt.is_complete else self.score_cost
