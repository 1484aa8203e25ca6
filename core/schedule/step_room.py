"""Tracks how many more prompt tokens one step may hold."""

from __future__ import annotations

from dataclasses import dataclass

from .deferral import Limits
from .sequence import SequenceState


@dataclass(slots=True)
class StepRoom:
    """What is left of a lane's prompt-token budget in one step.

    Attributes:
        limits: limits of the lane in this step.
        tokens: number of prompt tokens left in the budget.
        piece: how many of these may go to long prompts (those that need several steps); None: no separate
            limit.
        chunked: whether a prompt may be split over several steps; if not, it is computed in a single step.
        may_exceed: if prompts are not split, whether a single prompt may exceed the budget.
    """

    limits: Limits
    tokens: int
    piece: int | None
    chunked: bool
    may_exceed: bool

    @property
    def is_spent(self) -> bool:
        """Whether the budget has no tokens left for another sequence."""
        return self.tokens - self.limits.tokens_per_place <= 0

    def take(self, seq: SequenceState, count: int) -> None:
        """Subtract `count` tokens of a sequence from the budget."""
        self.tokens -= count + self.limits.tokens_per_place
        if seq.is_long and self.piece is not None:
            self.piece -= count

    def next_piece(self, seq: SequenceState) -> int:
        """Return how many tokens a running sequence may compute; 0 or less if it must wait."""
        count = self._room_for(seq)
        if self.chunked or count <= 0 or count == seq.num_remaining:
            return count
        return seq.num_remaining if self.may_exceed else 0

    def first_piece(self, seq: SequenceState) -> int | None:
        """Return how many tokens a newly admitted sequence computes; None if it needs a step of its own."""
        count = self._room_for(seq)
        if self.chunked or count == seq.num_remaining:
            return max(count, 0)
        is_first = self.tokens == self.limits.tokens
        return seq.num_remaining if is_first and self.may_exceed else None

    def _room_for(self, seq: SequenceState) -> int:
        """Return how many tokens of a sequence fit into the budget if its prompt is split."""
        room = min(seq.num_remaining, self.tokens - self.limits.tokens_per_place)
        return min(room, self.piece) if seq.is_long and self.piece is not None else room
