"""The two classes of sequences, live and deferrable, and the limits of each class in a step.

    live         Clients wait for these sequences. They are scheduled as if there were no other class.
    deferrable   These sequences, such as the lines of a batch, use the rest of a step after the live ones,
                 up to a share of the step. If no sequence is live, they may use the whole step. They lose
                 their rows and pages as soon as live sequences need them.

A running deferrable sequence that is not in the step is paused: it keeps its row and its pages.
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
    """Limits of a class in one step.

    Attributes:
        places: maximum number of sequences.
        tokens: maximum number of prompt tokens.
        tokens_per_place: number of tokens charged to `tokens` for each sequence, in addition to its prompt
            tokens. Above 0 if the limits bound the duration of a step, because each sequence adds to it.
    """

    places: int
    tokens: int
    tokens_per_place: int = 0

    @classmethod
    def share_of(cls, whole: Limits, share: float) -> Limits:
        """Return the limits for a share (0 to 1) of a step.

        A share above 0 allows at least one sequence and one token.
        """
        if share == 0:
            return cls(0, 0)
        return cls(max(1, int(share * whole.places)), max(1, int(share * whole.tokens)))


class Lane:
    """The sequences of one class, waiting and running.

    Args:
        ratio: estimate of the tokens that this class's running sequences will still need.
        table: table of all sequences.

    Attributes:
        queue: waiting sequences.
        why_waiting: reason why the first waiting sequence was not admitted in the last step that considered
            the queue; "" if that step did not consider it.
    """

    def __init__(self, ratio: NewTokenRatio, table: SequenceTable) -> None:
        self.ratio = ratio
        self.queue = WaitingQueue(table)
        self.why_waiting = ""
        self._table = table
        self._running: dict[str, SequenceState] = {}
        self._indices: Indices | None = None

    @property
    def is_open(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self._running or self.queue.size)

    @property
    def running(self) -> list[SequenceState]:
        """Running sequences, in the order in which they started."""
        return list(self._running.values())

    @property
    def num_running(self) -> int:
        """Number of running sequences."""
        return len(self._running)

    @property
    def running_indices(self) -> Indices:
        """Indices of running sequences, in the order in which they started: [R]."""
        if self._indices is None:
            self._indices = np.fromiter(
                (seq.index for seq in self._running.values()), np.intp, len(self._running)
            )
        return self._indices

    @property
    def waiting(self) -> list[SequenceState]:
        """Waiting sequences, in order of arrival."""
        return sorted(self._table.sequences(self.queue.indices), key=lambda seq: seq.arrival)

    @property
    def num_waiting(self) -> int:
        """Number of waiting sequences."""
        return self.queue.size

    @property
    def num_waiting_unscored(self) -> int:
        """Number of waiting sequences that do not request their prompt's log probabilities."""
        if not self.queue.size:
            return 0
        return self.queue.size - int(np.count_nonzero(self._table.is_scored[self.queue.indices]))

    def add(self, seq: SequenceState) -> None:
        """Add a waiting sequence."""
        self.queue.add(seq)

    def start(self, seq: SequenceState) -> None:
        """Move a waiting sequence to the running ones."""
        self.queue.remove(seq)
        self._running[seq.id] = seq
        self._indices = None
        seq.status = Status.RUNNING

    def stop(self, seq: SequenceState) -> None:
        """Move a running sequence back to the waiting ones."""
        del self._running[seq.id]
        self._indices = None
        self.queue.add(seq)
        seq.status = Status.WAITING

    def end(self, seq: SequenceState) -> None:
        """Remove a sequence that has ended."""
        if seq.status is Status.RUNNING:
            del self._running[seq.id]
            self._indices = None
        else:
            self.queue.remove(seq)
        seq.status = Status.FINISHED
