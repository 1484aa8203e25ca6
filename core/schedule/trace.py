"""What the scheduler tells about its decisions, to whoever wants to know. No text, no clock."""

from __future__ import annotations

from collections.abc import Callable
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


class QuietTrace:
    """Takes note of nothing: for those that want to hear of some decisions only, and override these."""

    def arrived(self, seq: SequenceState) -> None:
        """Do nothing."""

    def waits(self, seq: SequenceState, reason: str, num_ahead: int) -> None:
        """Do nothing."""

    def admitted(self, seq: SequenceState) -> None:
        """Do nothing."""

    def planned(self, plan: BatchPlan) -> None:
        """Do nothing."""

    def retracted(self, seq: SequenceState, reason: str) -> None:
        """Do nothing."""

    def ended(self, seq: SequenceState, reason: str) -> None:
        """Do nothing."""


def together(*traces: DecisionTrace | None) -> DecisionTrace | None:
    """Return one trace that tells all of these that are there; None if none is."""
    there = [trace for trace in traces if trace is not None]
    return _Several(there) if len(there) > 1 else there[0] if there else None


class _Several:
    """Tells several."""

    def __init__(self, traces: list[DecisionTrace]) -> None:
        self._traces = traces

    def __getattr__(self, name: str) -> Callable[..., None]:
        told = [getattr(trace, name) for trace in self._traces]

        def tell(*args: object) -> None:
            for each in told:
                each(*args)

        setattr(self, name, tell)  # found at once from now on
        return tell
