"""The set of waiting sequences. It is unordered; the policy determines the order of admission."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llmfw.core.interfaces.policy import Waiting

from .sequence import SequenceState
from .sequence_table import Indices, SequenceTable
from .tenants import Tenants


class WaitingQueue:
    """A set of waiting sequences, stored as table indices. Adding and removing take constant time.

    Args:
        table: table of all sequences.

    Attributes:
        size: number of waiting sequences.
    """

    def __init__(self, table: SequenceTable) -> None:
        self._table = table
        self._indices = np.zeros(64, dtype=np.intp)
        self.size = 0

    @property
    def indices(self) -> Indices:
        """Table indices of the waiting sequences: [W]. A view, valid until the queue changes."""
        return self._indices[: self.size]

    def add(self, seq: SequenceState) -> None:
        """Add a waiting sequence."""
        if self.size == len(self._indices):
            self._indices = np.concatenate([self._indices, np.zeros_like(self._indices)])
        self._indices[self.size] = seq.index
        self._table.place[seq.index] = self.size
        self.size += 1

    def remove(self, seq: SequenceState) -> None:
        """Remove a sequence; the last sequence of the queue takes over its index."""
        place = self._table.place[seq.index]
        self.size -= 1
        last = self._indices[self.size]
        self._indices[place] = last
        self._table.place[last] = place

    def view(self, tenants: Tenants, now: float) -> Waiting:
        """Return the policy's input: a copy, which later changes of the queue do not affect.

        Args:
            now: current time in seconds, on the clock of `came_at` and `deadline`.
        """
        table, indices = self._table, self.indices.copy()
        tenant = table.tenant[indices]
        length = table.length[indices]
        return Waiting(
            arrival=table.arrival[indices],
            waited=now - table.came_at[indices],
            time_left=table.deadline[indices] - now,
            priority=table.priority[indices],
            num_tokens=length,
            num_cached=table.num_cached[indices],
            num_to_come=table.max_len[indices] - length,
            tenant=tenant,
            served=tenants.served[tenant],
            overtaken=table.overtaken[indices],
            field=lambda name: table.field_column(name)[indices],
            request=lambda place: table.at(int(indices[place])).request,
        )

    def count_overtaken(self, admitted: Sequence[int]) -> None:
        """Update `overtaken` of all waiting and admitted sequences after an admission.

        Each count grows by the number of later arrivals that were admitted before the sequence.

        Args:
            admitted: table indices of the admitted sequences, in order of admission.
        """
        if not admitted:
            return
        table, indices = self._table, self.indices
        arrival = table.arrival[admitted]
        if (arrival[1:] < arrival[:-1]).any():
            table.overtaken[admitted] += np.tril(arrival > arrival[:, None]).sum(axis=1)
        earlier = np.searchsorted(np.sort(arrival), table.arrival[indices])
        table.overtaken[indices] += len(admitted) - earlier
