"""Two classes of sequences, live ones and deferrable ones, and what a class may take of a step. No tensors, no time.

    live         what somebody waits for. Scheduled as if there were no other class.
    deferrable   what runs in the rest: it gets what a step of live ones leaves, at most the share; where none is live,
                 all of it. It gives slots and pages back as soon as a live one wants them.

A deferrable sequence is paused while it runs and is in no step: it keeps its slot and its pages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .new_token_ratio import NewTokenRatio
from .sequence import SequenceState, Status
from .sequence_table import Indices, SequenceTable
from .waiting_queue import WaitingQueue


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
        table: of all sequences.

    Attributes:
        queue: those that wait.
    """

    def __init__(self, ratio: NewTokenRatio, table: SequenceTable) -> None:
        self.ratio = ratio
        self.queue = WaitingQueue(table)
        self._table = table
        self._running: dict[str, SequenceState] = {}
        self._indices: Indices | None = None

    @property
    def is_open(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self._running) or bool(len(self.queue))

    @property
    def running(self) -> list[SequenceState]:
        """Those that run, as they began."""
        return list(self._running.values())

    @property
    def num_running(self) -> int:
        """How many run."""
        return len(self._running)

    @property
    def running_indices(self) -> Indices:
        """Of those that run, as they began: [R]."""
        if self._indices is None:
            self._indices = np.fromiter(
                (seq.index for seq in self._running.values()), np.intp, len(self._running)
            )
        return self._indices

    @property
    def waiting(self) -> list[SequenceState]:
        """Those that wait, as they came."""
        return sorted(self._table.sequences(self.queue.indices), key=lambda seq: seq.arrival)

    @property
    def num_waiting(self) -> int:
        """How many wait."""
        return len(self.queue)

    def add(self, seq: SequenceState) -> None:
        """Let a sequence wait."""
        self.queue.add(seq)

    def start(self, seq: SequenceState) -> None:
        """Let a waiting sequence run."""
        self.queue.remove(seq)
        self._running[seq.id] = seq
        self._indices = None
        seq.status = Status.RUNNING

    def stop(self, seq: SequenceState) -> None:
        """Let a running sequence wait again."""
        del self._running[seq.id]
        self._indices = None
        self.queue.add(seq)
        seq.status = Status.WAITING

    def end(self, seq: SequenceState) -> None:
        """Forget a sequence."""
        if seq.status is Status.RUNNING:
            del self._running[seq.id]
            self._indices = None
        else:
            self.queue.remove(seq)
        seq.status = Status.FINISHED
