"""Interface for tracing the scheduler's decisions about requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .plan import BatchPlan
    from .sequence import SequenceState


class DecisionTrace(Protocol):
    """Receives each of the scheduler's decisions as it is made."""

    def arrived(self, seq: SequenceState) -> None:
        """Record that a new request waits."""

    def waits(self, seq: SequenceState, reason: str, num_ahead: int) -> None:
        """Record that a request was not admitted in this step.

        Args:
            reason: reason why the request waits.
            num_ahead: number of waiting requests before it in the policy's order.
        """

    def admitted(self, seq: SequenceState) -> None:
        """Record that a request was admitted. `seq.num_computed` of its tokens were found in the cache."""

    def planned(self, plan: BatchPlan) -> None:
        """Record that a step was planned."""

    def retracted(self, seq: SequenceState, reason: str) -> None:
        """Record that a request was retracted: it lost its pages, and waits again."""

    def ended(self, seq: SequenceState, reason: str) -> None:
        """Record that a request ended."""


class QuietTrace:
    """Ignores all decisions. Subclasses override the methods for the decisions that they need."""

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
    """Return one trace that forwards to the given traces, ignoring None; None if all are None."""
    there = [trace for trace in traces if trace is not None]
    return _Several(there) if len(there) > 1 else there[0] if there else None


class _Several:
    """Forwards decisions to several traces."""

    def __init__(self, traces: list[DecisionTrace]) -> None:
        self._traces = traces

    def __getattr__(self, name: str) -> Callable[..., None]:
        told = [getattr(trace, name) for trace in self._traces]

        def tell(*args: object) -> None:
            for each in told:
                each(*args)

        setattr(self, name, tell)  # later calls find it without __getattr__
        return tell
