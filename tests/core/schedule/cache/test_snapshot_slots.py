"""Slots for snapshots: none is lost, and the snapshot that saves least gives up its slot first."""

from __future__ import annotations

import pytest

from llmfw.core.schedule.cache.prefix_cache import NO_PAGES, CacheNode
from llmfw.core.schedule.cache.snapshot_slots import Snapshot, SnapshotSlots


def keep(slots: SnapshotSlots, num_saved: int) -> Snapshot:
    snapshot = Snapshot(slots.reserve(), 100, CacheNode(b"", NO_PAGES, None))
    slots.keep(snapshot, num_saved)
    return snapshot


def test_slots_are_numbered_after_the_rows() -> None:
    slots = SnapshotSlots(8, 3)
    assert sorted(slots.reserve() for _ in range(3)) == [8, 9, 10]
    assert slots.num_free == 0


def test_what_costs_most_to_compute_stays() -> None:
    slots = SnapshotSlots(0, 3)
    kept = [keep(slots, num_saved) for num_saved in (300, 20, 50)]
    assert slots.next_victim(()) is kept[1]
    for _ in range(3):
        slots.count_use(kept[1], 20)
    assert slots.next_victim(()) is kept[2]


def test_held_and_pinned_snapshots_stay() -> None:
    slots = SnapshotSlots(0, 3)
    kept = [keep(slots, num_saved) for num_saved in (10, 20, 30)]
    kept[0].num_holds = 1
    assert slots.next_victim({kept[1]}) is kept[2]
    assert slots.next_victim(set(kept)) is None


def test_what_was_popular_once_goes_in_time() -> None:
    slots = SnapshotSlots(0, 2)
    old = keep(slots, 300)
    for _ in range(1000):
        recent = keep(slots, 20)
        victim = slots.next_victim(())
        assert victim is not None
        slots.count_eviction(victim)
        slots.remove(victim)
        if victim is old:
            break
    assert victim is old
    assert slots.in_slot(recent.slot) is recent


def test_a_slot_cannot_be_freed_twice() -> None:
    slots = SnapshotSlots(0, 2)
    slot = slots.reserve()
    slots.free(slot)
    with pytest.raises(AssertionError, match="free already"):
        slots.free(slot)
    with pytest.raises(AssertionError, match="the slot of a snapshot was freed"):
        slots.free(keep(slots, 10).slot)
