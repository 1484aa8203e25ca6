"""Earliest deadline first: who is admitted, who gives way, and that nobody starves."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from llmfw.core import RequestField
from llmfw.core.base.request import FinishReason, Request, SamplingParams
from llmfw.core.base.step import StepOutput
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.radix_cache import RadixCache
from llmfw.core.schedule.constraint import constraint_of
from llmfw.core.schedule.isolated_policy import IsolatedPolicy
from llmfw.core.schedule.new_token_ratio import NewTokenRatio
from llmfw.core.schedule.scheduler import Scheduler
from llmfw.core.schedule.sequence_pages import SequencePages
from llmfw.core.testing import RequestFieldTests
from llmfw.core.testing.policy_views import make_figures, make_running, make_waiting
from llmfw.plugins.policies.deadline import Deadline
from llmfw.plugins.policies.edf import EDF

from ...length import also
from .few_seeds import FewSeeds
from .plain_policies import PlainEDF

NONE = np.nan
MAX_WAIT_S = 30.0
DAY_MS = 86_400_000


def edf(**options: Any) -> EDF:
    return EDF(EDF.Options(**options))


def order(deadlines: list[float], **columns: list[float]) -> list[int]:
    waiting = make_waiting(len(deadlines), fields={"deadline_ms": deadlines}, **columns)
    return edf().order(waiting, make_figures()).places.tolist()


def gives_way(
    own: float, running: list[float], options: dict[str, Any] | None = None, waited: float = 0
) -> list[int]:
    waiting = make_waiting(2, fields={"deadline_ms": [1, own]}, waited=[0, waited])
    others = make_running(len(running), fields={"deadline_ms": running})
    return edf(**options or {}).give_way(waiting, 1, others, make_figures()).tolist()


@pytest.mark.parametrize("preempt", [True, False])
class TestEDF(FewSeeds):
    @pytest.fixture
    def policy(self, preempt: bool) -> EDF:
        return edf(preempt=preempt, max_wait_s=5.0)

    @pytest.fixture
    def reference(self, preempt: bool) -> PlainEDF:
        return PlainEDF(preempt, max_wait_s=5.0)

    @pytest.fixture
    def fields(self) -> list[str]:
        return ["deadline_ms"]


class TestDeadline(RequestFieldTests):
    @pytest.fixture
    def field(self) -> RequestField:
        return Deadline(Deadline.Options())

    @pytest.fixture
    def accepted(self) -> list[Any]:
        return [1, 250, DAY_MS]

    @pytest.fixture
    def refused(self) -> list[Any]:
        return [0, -1, DAY_MS + 1, 1.5, "250", True]


def test_the_earliest_deadline_goes_first() -> None:
    """The time that a request has waited counts: 900 ms of which 800 are over come before 200 ms."""
    assert order([900, 500, 200], waited=[0.8, 0.0, 0.0]) == [0, 2, 1]


def test_requests_without_deadline_go_last() -> None:
    assert order([NONE, 80_000_000, NONE], arrival=[2, 1, 0]) == [1, 2, 0]


def test_ties_go_by_arrival() -> None:
    assert order([500, 500, NONE, NONE], arrival=[3, 2, 1, 0]) == [1, 0, 3, 2]


def test_a_timeout_is_a_deadline() -> None:
    assert order([NONE, 500, 900], time_left=[0.7, np.inf, 0.1]) == [2, 1, 0]


def test_long_waits_become_deadlines() -> None:
    """After max_wait_s, a request without a deadline goes before all whose deadline is later."""
    waited = [MAX_WAIT_S - 0.01, MAX_WAIT_S + 1, 0.0, 3.0]
    assert order([NONE, NONE, 1, 1_000], waited=waited) == [3, 1, 2, 0]


def test_later_deadlines_give_way_latest_first() -> None:
    assert gives_way(1_000, [900, 5_000, NONE, 2_000]) == [2, 1, 3]


@pytest.mark.parametrize(("gap", "found"), [(0.0, [0, 1]), (0.5, [0]), (2.0, [])])
def test_deadlines_within_the_gap_stay(gap: float, found: list[int]) -> None:
    assert gives_way(1_000, [2_000, 1_400], {"preemption_gap_s": gap}) == found


@pytest.mark.parametrize(("own", "waited"), [(NONE, 0), (NONE, 100), (1_000, 2)])
def test_late_or_undated_requests_preempt_none(own: float, waited: float) -> None:
    assert gives_way(own, [NONE, 5_000], waited=waited) == []


def test_preemption_can_be_turned_off() -> None:
    assert edf().preempts
    assert not edf(preempt=False).preempts


def test_a_full_pool_retracts_the_latest_deadline() -> None:
    running = make_running(4, fields={"deadline_ms": [5, NONE, 9, NONE]}, num_output=[0, 5, 0, 3])
    assert edf().retraction_order(running, make_figures()).tolist() == [3, 1, 2, 0]


class Server:
    """A scheduler with a small pool and a clock of its own; each step takes 0.1 s, every token is 1."""

    def __init__(self, policy: EDF, num_rows: int = 3) -> None:
        self.now, self.step_s = 0.0, 0.1
        self.ended: dict[str, float] = {}
        self.policy = IsolatedPolicy(policy, "under test", "edf")
        pool = KVPool(120, 1)
        self.pages = SequencePages(pool, RadixCache(pool), num_rows, 100)
        self.scheduler = Scheduler(
            self.pages,
            self.policy,
            NewTokenRatio(0.05),
            max_running=num_rows,
            prefill_budget=32,
            clock=lambda: self.now,
        )

    def add(self, id: str, num_tokens: int, deadline_ms: int | None = None, seed: int = 0) -> None:
        fields = {} if deadline_ms is None else {"deadline_ms": deadline_ms}
        prompt = [random.Random(id).randrange(100) for _ in range(10)]
        request = Request(id=id, prompt=prompt, sampling=SamplingParams(max_tokens=num_tokens), fields=fields)
        self.scheduler.add(request, constraint_of(request, None))

    def step(self) -> None:
        plan = self.scheduler.schedule()
        self.now += self.step_s
        for event in self.scheduler.commit(plan, StepOutput([1] * sum(part.samples for part in plan.parts))):
            if event.finish_reason is FinishReason.LENGTH:
                self.ended[event.id] = self.now

    def run(self) -> None:
        for _ in range(20_000):
            if not self.scheduler.has_work:
                break
            self.step()
        assert not self.scheduler.has_work
        assert self.policy.failure is None
        self.pages.check_nothing_leaked()


@pytest.mark.parametrize("preempt", [True, False])
def test_only_preemption_meets_an_urgent_deadline(preempt: bool) -> None:
    server = Server(edf(preempt=preempt), num_rows=1)
    server.add("long", 60)
    server.step()
    server.add("urgent", 5, 2_000)
    server.run()
    assert (server.ended["urgent"] < server.ended["long"]) is preempt
    assert (server.ended["urgent"] <= 2.1) is preempt
    assert server.scheduler.num_retractions == preempt


@pytest.mark.parametrize("seed", [0, 1, *also(range(2, 8))])
def test_random_requests_all_end(seed: int) -> None:
    """With deadlines, without and missed ones, in any order: each request gets all its tokens."""
    rng, server = random.Random(seed), Server(edf(max_wait_s=3.0))
    for i in range(80):
        deadline = rng.choice([None, rng.randrange(1, 1_000), rng.randrange(1_000, 20_000)])
        server.add(str(i), rng.randrange(1, 40), deadline)
        for _ in range(rng.randrange(8)):
            server.step()
    server.run()
    assert len(server.ended) == 80


def test_missed_deadlines_are_not_dropped() -> None:
    server = Server(edf())
    server.add("a", 50, 1)
    server.run()
    assert server.ended["a"] > 4


@pytest.mark.parametrize("seed", [0, 1, *also([2, 3])])
def test_undated_requests_do_not_starve(seed: int) -> None:
    """Urgent requests arrive without end, seven times as many as the server can run.

    About 110 have deadlines before 5 s, and take 37 s.
    """
    rng, server = random.Random(seed), Server(edf(max_wait_s=5.0))
    for _ in range(3):
        server.step()
    server.add("undated", 10)
    count = 0
    while "undated" not in server.ended and server.now < 60:
        for _ in range(2):
            server.add(f"urgent-{count}", 10, rng.randrange(500, 2_000))
            count += 1
        server.step()
    assert 5 < server.ended["undated"] < 40


@pytest.mark.parametrize("seed", range(4))
def test_an_unloaded_server_meets_all_deadlines(seed: int) -> None:
    """As long as few requests have deadlines, those without do not make them late."""
    rng, server, due = random.Random(seed), Server(edf(max_wait_s=1_000.0)), dict[str, float]()
    for i in range(40):
        server.add(f"background-{i}", 30)
        if i % 4 == 0:
            due[f"dated-{i}"] = server.now + 3
            server.add(f"dated-{i}", rng.randrange(1, 10), 3_000)
        for _ in range(12):
            server.step()
    server.run()
    late = {name: server.ended[name] - at for name, at in due.items() if server.ended[name] > at}
    assert not late
