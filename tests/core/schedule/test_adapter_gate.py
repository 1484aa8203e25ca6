"""Sequences start when their adapters are in slots: nobody is held up, and nobody waits forever."""

from __future__ import annotations

import random
from typing import Any

import pytest

from llmfw.core import Figures, Ordering, Waiting
from llmfw.core.schedule.adapter_gate import PATIENCE_S
from llmfw.core.schedule.slot_assignment import SlotAssignment, SlotWrite
from llmfw.plugins.policies.priority import Priority

from ...length import of_length
from .driver import Driver

STEP_S = 0.01


class Adapted(Driver):
    """Runs steps of `STEP_S` seconds. A slot is written during the step after the one that planned it."""

    def __init__(self, num_slots: int, **settings: Any) -> None:
        self.now = 0.0
        self.slots = SlotAssignment(num_slots)
        self.held: dict[int, int] = {}
        self.writing: list[SlotWrite] = []
        self.started: dict[str, float] = {}
        super().__init__(slots=self.slots, clock=lambda: self.now, **settings)

    def plan(self) -> Any:
        for write in self.writing:
            self.held[write.slot] = write.adapter
            self.slots.arrive(write)
        plan = super().plan()
        self.writing = self.slots.take_writes()
        for seq, slot in zip(plan.sequences, plan.step.adapters, strict=False):
            adapter = int(seq.table.adapter[seq.index])
            assert (adapter == 0 and slot == 0) or self.held[int(slot) - 1] == adapter, seq.id
            assert int(slot) - 1 not in {write.slot for write in self.writing}, "a slot in use is written"
        for seq in plan.sequences:
            self.started.setdefault(seq.id, self.now)
        self.now += STEP_S
        return plan

    def steps(self, seconds: float) -> None:
        """Run steps for this time."""
        for _ in range(round(seconds / STEP_S)):
            self.step()


def prompt(number: int) -> list[int]:
    return [number % 20 + 1, number // 20 + 1, 3]


def test_waiting_adapters_hold_up_nobody() -> None:
    driver = Adapted(1)
    driver.add("first", prompt(1), 40, number=1)
    driver.steps(0.02)
    driver.add("waits", prompt(2), 5, number=2)
    driver.add("same", prompt(3), 5, number=1)
    driver.add("base", prompt(4), 5)
    driver.steps(0.02)
    assert driver.started.keys() == {"first", "same", "base"}
    assert driver.scheduler.live.why_waiting == "its adapter waits for a slot"
    driver.finish()
    driver.check_outputs()


def test_adapters_in_slots_make_room_in_time() -> None:
    """An adapter with new requests all the time leaves its slot once another one has waited long enough."""
    driver = Adapted(1)
    for number in range(100):
        driver.add(f"hot{number}", prompt(number), 8, number=1)
        if number == 3:
            came = driver.now
            driver.add("waits", prompt(200), 8, number=2)
        driver.steps(0.02)
    assert driver.started["waits"] - came <= PATIENCE_S + 8 * STEP_S + 4 * STEP_S
    driver.finish()
    driver.check_outputs()
    assert driver.slots.num_brought >= 3


def test_slots_stay_when_nobody_waits_any_more() -> None:
    driver = Adapted(1)
    driver.add("first", prompt(1), 100, number=1)
    driver.steps(0.02)
    driver.add("waits", prompt(2), 5, number=2)
    driver.steps(PATIENCE_S + 0.05)
    driver.abort("waits")
    driver.add("same", prompt(3), 5, number=1)
    driver.steps(0.02)
    assert "same" in driver.started


def test_kept_slots_go_to_others_after_aborts() -> None:
    """A slot is kept for an adapter that waits; if its requests are aborted, a third adapter gets the slot."""
    driver = Adapted(1)
    driver.add("first", prompt(1), 40, number=1)
    driver.steps(0.02)
    driver.add("waits", prompt(2), 5, number=2)
    driver.steps(PATIENCE_S + 0.05)
    driver.abort("waits")
    driver.add("third", prompt(3), 5, number=3)
    driver.steps(0.5)
    assert "third" in driver.started


class FirstAlone(Priority):
    """Lets one sequence start at a time, that with the highest priority."""

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        found = super().order(waiting, figures)
        return Ordering(found.places, len(found.places) - 1)


def test_a_policy_that_holds_others_never_stalls() -> None:
    """The slot is kept for a sequence that the policy holds back for a more urgent one with another adapter."""
    driver = Adapted(1, policy=FirstAlone)
    driver.add("first", prompt(1), 5, number=1)
    driver.step()
    driver.add("urgent", prompt(2), 5, number=2, priority=9)
    driver.steps(0.3)
    assert driver.started.keys() == {"first", "urgent"}


def test_live_requests_take_slots_of_deferrable_ones() -> None:
    driver = Adapted(1)
    driver.add("line", prompt(1), 100, number=1, deferrable=True)
    driver.steps(0.05)
    driver.add("live", prompt(2), 5, number=2)
    driver.steps(0.04)
    assert "live" in driver.started
    driver.finish()
    driver.check_outputs()


def test_live_requests_take_slots_kept_for_deferrable() -> None:
    """A slot was written for a line that cannot start, because live requests have come meanwhile."""
    driver = Adapted(1)
    driver.add("line", prompt(1), 5, number=1, deferrable=True)
    driver.step()
    driver.add("base", prompt(2), 100)
    driver.add("live", prompt(3), 5, number=2)
    driver.steps(0.1)
    assert driver.started.keys() == {"base", "live"}


def test_deferrable_requests_do_not_take_slots() -> None:
    driver = Adapted(1)
    driver.add("live", prompt(1), 50, number=1)
    driver.steps(0.02)
    driver.add("line", prompt(2), 5, number=2, deferrable=True)
    driver.steps(PATIENCE_S + 0.1)
    driver.add("same", prompt(3), 5, number=1)
    driver.steps(0.02)
    assert "same" in driver.started
    assert "line" not in driver.started
    driver.finish()
    driver.check_outputs()


def test_lines_of_several_adapters_take_turns() -> None:
    """No live request is there, so that lines need not wait for the end of all lines of another adapter."""
    driver = Adapted(1)
    for number in range(50):
        driver.add(f"a{number}", prompt(number), 8, number=1, deferrable=True)
        if number == 3:
            driver.add("other", prompt(100), 8, number=2, deferrable=True)
        driver.steps(0.02)
    assert "other" in driver.started
    driver.finish()
    driver.check_outputs()


def test_urgent_requests_without_a_slot_retract_nobody() -> None:
    driver = Adapted(1, policy=Priority, max_running=2)
    for number in range(2):
        driver.add(f"first{number}", prompt(number), 30, number=1)
    driver.steps(0.02)
    driver.add("urgent", prompt(5), 5, number=2, priority=9)
    driver.steps(0.05)
    assert driver.scheduler.num_retractions == 0
    driver.finish()
    driver.check_outputs()


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("seed", range(of_length(3, 40)))
def test_no_request_of_random_traffic_starves(seed: int, overlap: bool) -> None:
    rng = random.Random(seed)
    num_slots, num_adapters = rng.choice([(1, 3), (2, 5), (4, 20)])
    driver = Adapted(num_slots, overlap=overlap, max_running=16, num_tokens=rng.choice([64, 512]))
    came: dict[str, float] = {}
    for _ in range(150):
        for _arrival in range(rng.choice([0, 1, 1, 2])):
            id = f"r{len(came)}"
            adapter = min(int(rng.paretovariate(0.7)), num_adapters + 1) % (num_adapters + 1)
            came[id] = driver.now
            driver.add(id, prompt(rng.randrange(60)), rng.randrange(1, 12), number=adapter)
        if rng.random() < 0.05 and came:
            driver.abort(rng.choice([*came]))
        driver.step()
    driver.finish()
    driver.check_outputs()
    assert driver.slots.num_brought > num_slots
    waited = [driver.started[id] - when for id, when in came.items() if id in driver.started]
    most = num_adapters * (PATIENCE_S + 12 * STEP_S) + len(came) * STEP_S
    assert max(waited) <= most
