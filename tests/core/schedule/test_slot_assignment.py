"""Adapters take slots from those that were not used for the longest time, and no slot is lost."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from llmfw.core.schedule.slot_assignment import SlotAssignment, SlotWrite

NUM_SLOTS = 3
ADAPTERS = st.integers(1, 6)


def filled(*adapters: int, num_slots: int = 2) -> SlotAssignment:
    """Return an assignment with these adapters in slots."""
    slots = SlotAssignment(num_slots)
    for adapter in adapters:
        assert slots.bring(adapter, ())
    for write in slots.take_writes():
        slots.arrive(write)
    return slots


def test_the_least_recently_used_adapter_leaves() -> None:
    slots = filled(1, 2)
    slots.use(1)
    assert slots.bring(3, in_use=())
    assert slots.adapters == [1, 3]
    assert not slots.bring(4, in_use={1})  # 3 is not there yet
    [write] = slots.take_writes()
    assert (write.adapter, slots.slot_of(3)) == (3, None)
    slots.arrive(write)
    assert slots.slot_of(3) == write.slot
    assert slots.bring(4, in_use={1})
    assert slots.adapters == [1, 4]


def test_writes_of_unloaded_adapters_are_ignored() -> None:
    """The number may belong to another adapter by then."""
    slots = filled(1)
    assert slots.bring(2, ())
    [late] = slots.take_writes()
    slots.remove(2)
    assert slots.bring(2, ())
    slots.arrive(late)
    assert slots.slot_of(2) is None
    [write] = slots.take_writes()
    slots.arrive(write)
    assert slots.slot_of(2) == write.slot
    slots.remove(2)
    slots.remove(2)
    assert slots.num_free == 1


class Traffic(RuleBasedStateMachine):
    """Any operations, against a model: what each slot holds, by the writes that are done."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = SlotAssignment(NUM_SLOTS)
        self.running: set[int] = set()
        self.held: dict[int, int] = {}
        self.open: list[SlotWrite] = []

    @rule(adapter=ADAPTERS)
    def bring(self, adapter: int) -> None:
        if adapter not in self.slots:
            could = self.slots.num_free or any(
                self.slots.slot_of(each) is not None and each not in self.running
                for each in self.slots.adapters
            )
            assert self.slots.bring(adapter, self.running) is bool(could)

    @rule(adapter=ADAPTERS)
    def run(self, adapter: int) -> None:
        if (slot := self.slots.slot_of(adapter)) is not None:
            assert self.held[slot] == adapter
            self.slots.use(adapter)
            self.running.add(adapter)

    @rule(adapter=ADAPTERS)
    def end(self, adapter: int) -> None:
        self.running.discard(adapter)

    @rule(adapter=ADAPTERS)
    def unload(self, adapter: int) -> None:
        if adapter not in self.running:
            self.slots.remove(adapter)

    @rule(most=st.integers(0, 3))
    def write(self, most: int) -> None:
        self.open += self.slots.take_writes()
        for each in self.open[:most]:
            self.held[each.slot] = each.adapter
            self.slots.arrive(each)
        del self.open[:most]

    @invariant()
    def slots_are_distinct(self) -> None:
        found = [slot for each in self.slots.adapters if (slot := self.slots.slot_of(each)) is not None]
        assert len(set(found)) == len(found)
        assert self.slots.num_free + len(self.slots.adapters) == NUM_SLOTS
        assert self.running <= set(self.slots.adapters)
        assert all(self.held[self.slots.slot_of(each) or 0] == each for each in self.running)


test_traffic_keeps_slots_apart = Traffic.TestCase
