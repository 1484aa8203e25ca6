"""What the scheduler tells about its decisions, to whoever wants to know. No text, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .plan import BatchPlan
    from .sequence import SequenceState


class DecisionTrace(Protocol):
    """Is told of each decision as it is made. The scheduler of an engine that traces nothing has none of these."""

    def arrived(self, seq: SequenceState) -> None:
        """A request waits for the first time."""

    def waits(self, seq: SequenceState, reason: str, num_ahead: int) -> None:
        """The policy's order came to a request, or would have, and it was not admitted."""

    def admitted(self, seq: SequenceState) -> None:
        """A request runs; `num_computed` of its tokens were cached."""

    def planned(self, plan: BatchPlan) -> None:
        """A step was planned."""

    def retracted(self, seq: SequenceState, reason: str) -> None:
        """A request lost its pages, and waits again."""

    def ended(self, seq: SequenceState, reason: str) -> None:
        """A request ended."""
