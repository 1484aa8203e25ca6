"""Two classes of sequences, live ones and deferrable ones, and what a class may take of a step. No tensors, no time.

    live         what somebody waits for. Scheduled as if there were no other class.
    deferrable   what runs in the rest: it gets what a step of live ones leaves, at most the share; where none is live,
                 all of it. It gives slots and pages back as soon as a live one wants them.

A deferrable sequence is paused while it runs and is in no step: it keeps its slot and its pages.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice

from .admission import NewTokenRatio
from .sequence import SequenceState, Status

ORDERED_AT_ONCE = 128
"""So many of the deferrable sequences that wait longest are shown to the policy: thousands may wait."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a class may take of one step.

    Attributes:
        places: most sequences.
        tokens: most prompt tokens.
        tokens_per_place: of these, so many are taken by each sequence besides its own, where it is a step's time that
            is bounded, and sequences cost time, too.
    """

    places: int
    tokens: int
    tokens_per_place: int = 0

    @classmethod
    def share_of(cls, whole: Limits, share: float) -> Limits:
        """Return a share of a step, 0 to 1: nothing if it is 0, else at least one sequence and one token."""
        if share == 0:
            return cls(0, 0)
        return cls(max(1, int(share * whole.places)), max(1, int(share * whole.tokens)))


class Lane:
    """The sequences of one class.

    Args:
        ratio: the estimate of tokens still to come, of this class.
        ordered_at_once: most that are shown to the policy; None: all that wait.
    """

    def __init__(self, ratio: NewTokenRatio, ordered_at_once: int | None = None) -> None:
        self.ratio = ratio
        self.running: list[SequenceState] = []
        self._waiting: OrderedDict[str, SequenceState] = OrderedDict()
        self._ordered_at_once = ordered_at_once

    @property
    def is_open(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self.running or self._waiting)

    @property
    def waiting(self) -> list[SequenceState]:
        """Those that wait: retracted ones, then the others as they came."""
        return list(self._waiting.values())

    @property
    def num_waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def candidates(self) -> list[SequenceState]:
        """Those that may be admitted now."""
        return list(islice(self._waiting.values(), self._ordered_at_once))

    def add(self, seq: SequenceState) -> None:
        """Let a sequence wait, behind the others."""
        self._waiting[seq.id] = seq

    def start(self, seq: SequenceState) -> None:
        """Let a waiting sequence run."""
        del self._waiting[seq.id]
        self.running.append(seq)
        seq.status = Status.RUNNING

    def stop(self, seq: SequenceState) -> None:
        """Let a running sequence wait again, before those that have not run."""
        self.running.remove(seq)
        self._waiting[seq.id] = seq
        self._waiting.move_to_end(seq.id, last=False)
        seq.status = Status.WAITING

    def end(self, seq: SequenceState) -> None:
        """Forget a sequence."""
        if seq.status is Status.RUNNING:
            self.running.remove(seq)
        else:
            del self._waiting[seq.id]
        seq.status = Status.FINISHED

    def most_output_first(self) -> list[SequenceState]:
        """Return those that run, the best to retract last: the least work is lost for the most room with those that
        have the fewest output tokens, and among them the longest prompt."""
        return sorted(self.running, key=lambda seq: (-seq.num_output, seq.prompt_len, seq.arrival))
