"""Slots for snapshots of states, and the order in which snapshots give up their slots.

A snapshot is a copy of a sequence's states at one position, kept for sequences that start with the same
tokens. All snapshots of a model have the same size. So the worth of a snapshot is the number of tokens that
each use saves, times one more than the number of its uses. Snapshots are evicted in the order of
GreedyDual-Size-Frequency (Cherkasova, 1998): when a snapshot is kept or used, its rank becomes its worth plus
the rank of the last evicted snapshot. So a snapshot that is no longer used is evicted after some time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .prefix_cache import CacheNode


class Snapshot:
    """A copy of a sequence's states after its first tokens.

    Attributes:
        slot: slot of the copy in the `StateStorage`.
        num_tokens: number of tokens that the states cover.
        node: node of the prefix cache that ends with the last of these tokens.
        rank: rank in the order of eviction; the snapshot with the smallest rank is evicted first.
        num_uses: number of sequences that have started from this snapshot.
        num_holds: number of sequences that will start from this snapshot, but have not computed anything yet.
        is_valid: whether the slot holds the copy, or will hold it once all launched steps have run.
    """

    __slots__ = ("is_valid", "node", "num_holds", "num_tokens", "num_uses", "rank", "slot")

    def __init__(self, slot: int, num_tokens: int, node: CacheNode) -> None:
        self.slot = slot
        self.num_tokens = num_tokens
        self.node = node
        self.rank = 0.0
        self.num_uses = 0
        self.num_holds = 0
        self.is_valid = True


class SnapshotSlots:
    """The slots for snapshots, and the snapshots in them. A slot is free, reserved, or holds a snapshot.

    Args:
        first: number of the first slot, which is the number of rows of the page table.
        count: number of slots.

    Attributes:
        count: number of slots.
        num_evicted: number of snapshots evicted since start to make room for others.
    """

    def __init__(self, first: int, count: int) -> None:
        self.count = count
        self.num_evicted = 0
        self._free = list(range(first + count - 1, first - 1, -1))
        self._kept: dict[int, Snapshot] = {}
        self._floor = 0.0

    @property
    def num_free(self) -> int:
        """Number of free slots."""
        return len(self._free)

    @property
    def num_kept(self) -> int:
        """Number of slots that hold snapshots."""
        return len(self._kept)

    def __iter__(self) -> Iterator[Snapshot]:
        """Iterate over the snapshots."""
        return iter(self._kept.values())

    def reserve(self) -> int:
        """Take a free slot. At least one slot must be free."""
        return self._free.pop()

    def free(self, slot: int) -> None:
        """Return a reserved slot."""
        assert slot not in self._kept, "the slot of a snapshot was freed"
        assert slot not in self._free, "a slot was freed that is free already"
        self._free.append(slot)

    def keep(self, snapshot: Snapshot, num_saved: int) -> None:
        """Let a reserved slot hold a snapshot.

        Args:
            num_saved: number of tokens that the snapshot saves each sequence that starts from it.
        """
        assert snapshot.slot not in self._free
        assert snapshot.slot not in self._kept
        self._kept[snapshot.slot] = snapshot
        self._rank(snapshot, num_saved)

    def count_use(self, snapshot: Snapshot, num_saved: int) -> None:
        """Count a sequence that starts from a snapshot."""
        snapshot.num_uses += 1
        self._rank(snapshot, num_saved)

    def remove(self, snapshot: Snapshot) -> None:
        """Free the slot of a snapshot."""
        del self._kept[snapshot.slot]
        snapshot.is_valid = False
        self._free.append(snapshot.slot)

    def in_slot(self, slot: int) -> Snapshot | None:
        """Return the snapshot in a slot; None if the slot holds none."""
        return self._kept.get(slot)

    def next_victim(self, pinned: Collection[Snapshot]) -> Snapshot | None:
        """Return the snapshot to evict first; None if all are held or pinned."""
        free = (each for each in self._kept.values() if not each.num_holds and each not in pinned)
        return min(free, key=lambda each: each.rank, default=None)

    def count_eviction(self, snapshot: Snapshot) -> None:
        """Record that a snapshot is evicted to make room for another snapshot."""
        self.num_evicted += 1
        self._floor = max(self._floor, snapshot.rank)

    def _rank(self, snapshot: Snapshot, num_saved: int) -> None:
        snapshot.rank = self._floor + num_saved * (1 + snapshot.num_uses)
