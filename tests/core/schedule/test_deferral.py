"""Deferrable sequences run in what live ones leave, give way to them, and lose nothing by it."""

from __future__ import annotations

import random

import pytest

from llmfw.core.interfaces.policy import Figures, Ordering, SchedulePolicy, Waiting
from llmfw.core.schedule.deferral import Limits
from llmfw.core.schedule.new_token_ratio import MAX_NEW_TOKENS_COUNTED
from llmfw.core.schedule.plan import BatchPlan
from llmfw.core.schedule.sequence import SequenceState, Status
from llmfw.plugins.policies.fcfs import FCFS
from llmfw.plugins.policies.lpm import LPM

from ...length import of_length
from .driver import Driver, drive_at_random


class CheckedDriver(Driver):
    """Checks, of each plan, what live and deferrable sequences are promised.

    Args:
        alone: limits of steps that hold no live sequence.
    """

    def __init__(
        self,
        *,
        share: float = 0.0,
        alone: Limits | None = None,
        budget: int = 32,
        max_running: int = 8,
        policy: type[SchedulePolicy] = FCFS,
        **settings: object,
    ) -> None:
        super().__init__(
            share=share,
            budget=budget,
            max_running=max_running,
            policy=policy,
            **settings,  # type: ignore[arg-type]
        )
        self.alone = alone
        self.most_beside = (
            (max(1, int(share * max_running)), max(1, int(share * budget))) if share else (0, 0)
        )
        self.budget, self.max_running = budget, max_running
        self.num_paused = self.num_gave_way = self.num_beside = 0

    def plan(self) -> BatchPlan:
        live, deferrable = self.scheduler.live, self.scheduler.deferrable
        was_open, lived, deferred = live.is_open, list(live.running), list(deferrable.running)
        plan = self.scheduler.schedule(self.alone)
        assert self.scheduler.num_running <= self.max_running
        places = [p for p in plan.parts if p.seq.request.deferrable]
        num_prompt = sum(p.count for p in places if p.is_prefill)
        if was_open:
            assert len(places) <= self.most_beside[0]
            uncut = not self.chunked and self.most_beside[1] == self.budget  # as for live ones
            assert num_prompt <= self.most_beside[1] or uncut
            self._check_live_ones(plan, lived)
        elif self.alone:
            assert len(places) <= self.alone.places
            assert num_prompt <= self.alone.tokens or sum(p.is_prefill for p in places) == 1
        self.num_beside += was_open and bool(places)
        self.num_paused += len(deferrable.running) > len(places)
        self.num_gave_way += was_open and any(seq.status is Status.WAITING for seq in deferred)
        return plan

    def _check_live_ones(self, plan: BatchPlan, lived: list[SequenceState]) -> None:
        """Check that none was retracted, or waits, for the sake of deferrable ones."""
        deferrable = self.scheduler.deferrable.running
        retracted = any(seq.status is Status.WAITING for seq in lived)
        assert not (retracted and deferrable)
        planned = [p for p in plan.parts if not p.seq.request.deferrable]
        waiting = [seq for seq in self.scheduler.live.waiting if not seq.num_in_flight]
        if not waiting or not deferrable or any(p.is_new for p in planned):
            return
        first = next(seq for seq in self.scheduler.order(self.scheduler.live) if seq in waiting)
        left = self.budget - sum(p.count for p in planned if p.is_prefill or not p.samples)
        assert left <= 0 or len(lived) == self.max_running or not self._would_fit(first, left)

    def _would_fit(self, seq: SequenceState, left: int) -> bool:
        """Return whether a live sequence would be admitted if there were only live ones."""
        live, size = self.scheduler.live, self.pages.page_size
        cached = self.pages.cache.match(seq.token_ids[: seq.num_reusable]).pages
        held = {page for s in live.running for page in self.pages.table[s.row, : s.num_pages].tolist()}
        available = (self.pages.pool.num_pages - len(held | set(cached.tolist()))) * size
        reserved = live.ratio.expected_tokens(self.pages.numbers, live.running_indices, size)
        to_compute = seq.length - len(cached) * size
        if not self.chunked and to_compute > left < self.budget:
            return False
        return to_compute + min(seq.num_to_come, MAX_NEW_TOKENS_COUNTED) <= available - reserved


@pytest.mark.long
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_random_mixed_class_operations_keep_all_invariants(share: float, overlap: bool) -> None:
    rng = random.Random(f"{share} {overlap}")
    gave_way = paused = beside = 0
    for _ in range(of_length(5, 8)):
        driver = CheckedDriver(
            share=share,
            alone=rng.choice([None, Limits(1, 3, 1), Limits(3, 9, 2)]),
            policy=rng.choice([FCFS, LPM]),
            page_size=rng.choice([1, 4, 16]),
            num_tokens=rng.choice([64, 128, 256]),
            budget=rng.choice([1, 7, 16, 64]),
            max_running=rng.choice([1, 3, 8]),
            overlap=overlap,
            cached=rng.random() < 0.9,
            chunked=rng.random() < 0.8,
            conservativeness=rng.choice([0.05, 1.0]),
        )
        drive_at_random(driver, rng, 500, deferrable=rng.choice([0.5, 0.9]))
        driver.finish()
        driver.check_outputs()
        gave_way, paused = gave_way + driver.num_gave_way, paused + driver.num_paused
        beside += driver.num_beside
    assert gave_way > 0
    assert paused > 0
    assert (beside > 0) == (share > 0)


def ids(plan: BatchPlan) -> list[str]:
    return [p.seq.id for p in plan.parts]


def test_deferrable_requests_pause_for_live_ones() -> None:
    driver = CheckedDriver()
    driver.add("batch", [1] * 5, 10, deferrable=True)
    assert ids(driver.step()) == ["batch"]
    driver.add("live", [2] * 5, 3)
    assert [ids(driver.step()) for _ in range(3)] == [["live"]] * 3
    assert driver.scheduler.deferrable.running[0].num_pages > 0
    assert ids(driver.step()) == ["batch"]
    driver.finish()
    driver.check_outputs()
    assert driver.scheduler.num_retractions == 0


def test_live_requests_take_the_youngest_deferrable_slot() -> None:
    """The deferrable request with the least output is retracted."""
    driver = CheckedDriver(max_running=2)
    driver.add("old", [1] * 5, 30, deferrable=True)
    driver.step()
    driver.add("young", [2] * 5, 30, deferrable=True)
    driver.step()
    driver.add("live", [3] * 5, 30)
    assert ids(driver.step()) == ["live"]
    assert [seq.id for seq in driver.scheduler.deferrable.waiting] == ["young"]
    driver.finish()
    driver.check_outputs()


def test_live_requests_take_deferrable_pages_at_once() -> None:
    driver = CheckedDriver(num_tokens=64)
    driver.add("batch", [1] * 20, 30, deferrable=True)
    for _ in range(20):
        driver.step()
    driver.add("live", [2] * 30, 30)
    assert ids(driver.step()) == ["live"]
    driver.finish()
    driver.check_outputs()
    assert driver.num_gave_way == 1


def test_a_share_lets_deferrable_requests_run_alongside() -> None:
    driver = CheckedDriver(share=0.25, max_running=8, budget=32)
    for i in range(4):
        driver.add(f"batch {i}", [i] * 6, 10, deferrable=True)
    driver.add("live", [9] * 5, 20)
    assert [(p.seq.id, p.count) for p in driver.step().parts] == [
        ("live", 5),
        ("batch 0", 6),
        ("batch 1", 2),
    ]
    driver.step()
    assert ids(driver.step()) == ["live", "batch 0", "batch 1"]


def test_a_share_admits_none_while_live_ones_wait() -> None:
    driver = CheckedDriver(share=0.5, num_tokens=64)
    driver.add("first", [1] * 10, 40)
    driver.step()
    driver.add("second", [2] * 10, 40)
    driver.add("batch", [3], 2, deferrable=True)
    assert ids(driver.step()) == ["first"]
    driver.finish()


def test_limits_bound_deferrable_steps() -> None:
    driver = CheckedDriver(alone=Limits(places=3, tokens=12, tokens_per_place=4))
    for i in range(5):
        driver.add(str(i), [i] * 7, 10, deferrable=True)
    counts = [[(p.seq.id, p.count) for p in driver.step().parts] for _ in range(4)]
    assert counts == [
        [("0", 7)],
        [("0", 1), ("1", 4)],
        [("0", 1), ("1", 3)],
        [("0", 1), ("1", 1)],
    ]
    driver.finish()
    driver.check_outputs()


class Spy(FCFS):
    """Counts what it is shown."""

    num_shown = 0

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        Spy.num_shown += len(waiting)
        return super().order(waiting, figures)


def test_waiting_deferrable_requests_cost_live_steps_nothing() -> None:
    driver = CheckedDriver(policy=Spy)
    driver.add("live", [1] * 5, 50)
    driver.step()
    for i in range(5000):
        driver.add(str(i), [2] * 5, 2, deferrable=True)
    Spy.num_shown = 0
    for _ in range(20):
        driver.step()
    assert Spy.num_shown == 0
    driver.abort("live")
    driver.step()
    assert Spy.num_shown == 5000
