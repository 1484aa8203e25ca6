"""Lets waiting sequences start whose adapters are in slots, and brings other adapters into slots.

A sequence whose adapter finds no slot is passed over, and does not hold up others. Once its adapter has waited for
`PATIENCE_S`, one adapter in a slot takes no new sequences: its slot becomes free when its running ones have ended.
So each adapter that waits first delays the next one by at most `PATIENCE_S` and the longest running request. If only
deferrable sequences use an adapter, a live sequence takes its slot at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from .deferral import Lane
from .sequence import SequenceState
from .sequence_table import Indices, SequenceTable
from .slot_assignment import SlotAssignment

PATIENCE_S = 0.1
"""Seconds that an adapter waits for a slot before another one must make room for it."""


class AdapterGate:
    """Decides for each waiting sequence whether its adapter lets it start.

    Args:
        slots: adapters in slots; None: the model has no slots.
        table: table of all sequences.
        live, deferrable: the sequences of each class (see `deferral`).
        clock: monotonic clock in seconds.
    """

    def __init__(
        self,
        slots: SlotAssignment | None,
        table: SequenceTable,
        live: Lane,
        deferrable: Lane,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = slots
        self._table = table
        self._live = live
        self._deferrable = deferrable
        self._clock = clock
        self._since: dict[int, float] = {}  # adapter that waits for a slot → since when
        self._leaving: dict[int, int] = {}  # adapter that must leave its slot → adapter that gets the slot
        # Adapters that were brought into slots, and that no sequence has used yet.
        self._fresh: set[int] = set()

    def admits(self, seq: SequenceState) -> bool:
        """Return whether a waiting sequence may start now, as far as its adapter is concerned."""
        adapter = int(self._table.adapter[seq.index])
        if not adapter or self._slots is None:
            return True
        if self._leaving and adapter in self._leaving:
            self._drop_unneeded()
            if adapter in self._leaving:
                return False
        if adapter not in self._slots and not self._bring(adapter, is_live=not seq.request.deferrable):
            return False
        return self._slots.slot_of(adapter) is not None

    def start(self, seq: SequenceState) -> None:
        """Record that an admitted sequence runs, and note its slot for the steps."""
        adapter = int(self._table.adapter[seq.index])
        if adapter and self._slots is not None:
            slot = self._slots.slot_of(adapter)
            assert slot is not None, f"sequence {seq.id} started without a slot for its adapter"
            self._table.slot[seq.index] = slot + 1
            self._table.uses_slots = True
            self._fresh.discard(adapter)
            self._slots.use(adapter)

    def stop_keeping(self) -> bool:
        """Keep no slot for any adapter, if no sequence runs and no slot is being written; return whether one was kept.

        Call this when no waiting sequence can start: the policy may hold back those that the slots are kept for.
        """
        if self._slots is None or self._live.num_running or self._deferrable.num_running:
            return False
        if self._slots.has_arriving or not (self._leaving or self._fresh):
            return False
        self._leaving.clear()
        self._fresh.clear()
        return True

    def unneeded(self, seq: SequenceState) -> list[SequenceState]:
        """Return the running deferrable sequences whose retraction gives a slot to a live sequence that waits
        for one.

        Empty if no slot is used by deferrable sequences alone.
        """
        adapter = int(self._table.adapter[seq.index])
        if not adapter or self._slots is None or adapter in self._slots or seq.request.deferrable:
            return []
        if adapter in self._leaving.values():
            return []
        only = self._running(self._deferrable).keys() - self._running(self._live).keys()
        if not only:
            return []
        least = next((each for each in self._slots.adapters if each in only), None)
        return [each for each in self._deferrable.running if self._table.adapter[each.index] == least]

    def _bring(self, adapter: int, *, is_live: bool) -> bool:
        """Bring an adapter into a slot; return whether there was a slot. If not, note that it waits."""
        assert self._slots is not None
        if self._leaving:
            self._drop_unneeded()
        running = self._running(self._live) + self._running(self._deferrable)
        if self._slots.bring(adapter, running.keys() | self._kept(adapter, is_live=is_live)):
            self._fresh.add(adapter)
            self._since.pop(adapter, None)
            self._leaving = {each: comes for each, comes in self._leaving.items() if comes != adapter}
            return True
        now = self._clock()
        since = self._since.setdefault(adapter, now)
        if (
            (is_live or not self._live.is_open)
            and now - since >= PATIENCE_S
            and adapter not in self._leaving.values()
        ):
            self._make_leave(adapter, running)
        return False

    def _kept(self, adapter: int, *, is_live: bool) -> set[int]:
        """Return the adapters whose slots are kept for other adapters than this one: of live sequences, or of all."""
        if not (self._leaving or self._fresh):
            return set()
        waiting = self._adapters_at(self._live.queue.indices) if is_live else self._waiting()
        kept = {each for each, comes in self._leaving.items() if comes != adapter and comes in waiting}
        return kept | (self._fresh & waiting.keys())

    def _make_leave(self, adapter: int, running: Counter[int]) -> None:
        """Choose the adapter that leaves its slot for another one: that with the fewest running sequences."""
        assert self._slots is not None
        staying = [each for each in self._slots.adapters if each not in self._leaving and running[each]]
        if staying:
            self._leaving[min(staying, key=lambda each: running[each])] = adapter

    def _drop_unneeded(self) -> None:
        """Forget the adapters that waited for a slot, and for which no sequence waits any more."""
        waiting = self._waiting()
        self._leaving = {each: comes for each, comes in self._leaving.items() if comes in waiting}
        self._since = {each: since for each, since in self._since.items() if each in waiting}

    def _waiting(self) -> Counter[int]:
        """Return the number of waiting sequences of each adapter."""
        return self._adapters_at(self._live.queue.indices) + self._adapters_at(self._deferrable.queue.indices)

    def _running(self, lane: Lane) -> Counter[int]:
        return self._adapters_at(lane.running_indices)

    def _adapters_at(self, indices: Indices) -> Counter[int]:
        """Return the number of sequences of each adapter, among the sequences at these indices."""
        found = Counter(self._table.adapter[indices].tolist())
        del found[0]
        return found
