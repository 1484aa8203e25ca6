"""What a policy is shown, and what its answers do."""

from __future__ import annotations

import numpy as np
import pytest

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.interfaces.policy import Figures, Ordering, Places, Running, SchedulePolicy, Waiting
from llmfw.core.schedule.sequence import SequenceState
from llmfw.core.schedule.sequence_table import SequenceTable
from llmfw.core.schedule.tenants import NUM_REMEMBERED, Tenants
from llmfw.plugins.policies.fcfs import FCFS
from llmfw.plugins.policies.lpm import LPM
from llmfw.plugins.policies.priority import Priority

from .driver import Driver


class Spy(FCFS):
    """Keeps what it was shown."""

    shown: Waiting
    figures: Figures

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        type(self).shown, type(self).figures = waiting, figures
        return super().order(waiting, figures)


class Urgent(Priority):
    """Lets any larger priority go first."""

    def give_way(self, waiting: Waiting, place: int, running: Running, figures: Figures) -> Places:
        less = np.flatnonzero(running.priority < waiting.priority[place])
        return less[np.lexsort((running.num_output[less], running.priority[less]))]


class Holding(FCFS):
    """Admits one at a time."""

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        order = super().order(waiting, figures)
        return Ordering(order.places, len(waiting) - (0 if figures.num_running else 1))


def test_columns_describe_each_request() -> None:
    driver = Driver(policy=Spy, max_running=1, num_tokens=1000)
    driver.add("warm", [1] * 20, 1)
    driver.finish()
    driver.add("runs", [2] * 5, 30)
    driver.step()
    driver.add("waits", [1] * 20 + [3], 7, priority=4, tenant="a", timeout_s=60)
    driver.add("too", [3] * 4, 9, tenant="a")
    driver.scheduler.order(driver.scheduler.live)
    shown = Spy.shown
    first = int(shown.arrival.argmin())
    assert shown.request(first).id == "waits"
    columns = ("num_tokens", "num_cached", "num_to_come", "priority", "overtaken")
    assert [int(getattr(shown, name)[first]) for name in columns] == [21, 20, 7, 4, 0]
    assert 59 < shown.time_left[first] <= 60
    assert shown.time_left[1 - first] == np.inf
    assert shown.tenant[0] == shown.tenant[1]


def test_live_requests_may_take_deferrable_places() -> None:
    driver = Driver(policy=Spy, max_running=3, num_tokens=1000)
    for i in range(3):
        driver.add(f"deferrable {i}", [i + 1] * 5, 30, deferrable=True)
    driver.step()
    driver.scheduler.order(driver.scheduler.live)
    assert (Spy.figures.num_running, Spy.figures.num_places) == (3, 3)
    driver.scheduler.order(driver.scheduler.deferrable)
    assert Spy.figures.num_places == 0


def test_same_step_admissions_count_as_overtaken_in_order() -> None:
    driver = Driver(policy=LPM, max_running=8, num_tokens=1000)
    driver.add("warm", [1] * 20, 1)
    driver.finish()
    for name, prompt in (("cold", [2] * 3), ("hit", [1] * 20), ("later", [1] * 20 + [3]), ("last", [4])):
        driver.add(name, prompt, 9)
    driver.step()
    counts = {seq.id: int(driver.pages.numbers.overtaken[seq.index]) for seq in driver.scheduler.live.running}
    assert counts == {"later": 0, "hit": 1, "cold": 2, "last": 0}


def test_overtaken_requests_are_counted() -> None:
    driver = Driver(policy=LPM, max_running=1, num_tokens=1000)
    driver.add("warm", [1] * 20, 1)
    driver.finish()
    driver.add("cold", [2] * 20, 1)
    for i in range(3):
        driver.add(f"hit {i}", [1] * 20 + [i], 1)
    while [seq.id for seq in driver.scheduler.live.waiting] != ["cold"]:
        driver.step()
    assert driver.pages.numbers.overtaken[driver.scheduler.live.queue.indices].tolist() == [3]


def test_urgent_requests_displace_less_urgent_ones() -> None:
    """The retracted request loses no output."""
    driver = Driver(policy=Urgent, max_running=2, num_tokens=1000)
    for name, priority in (("low", 0), ("middle", 1)):
        driver.add(name, [3] * 10, 40, priority=priority)
        driver.step()
    driver.add("high", [5] * 10, 5, priority=2)
    driver.step()
    assert {seq.id for seq in driver.scheduler.live.running} == {"middle", "high"}
    driver.add("equal", [6] * 10, 5, priority=1)
    driver.step()
    assert {seq.id for seq in driver.scheduler.live.running} == {"middle", "high"}
    driver.finish()
    driver.check_outputs()


def test_none_is_retracted_without_enough_gain() -> None:
    driver = Driver(policy=Urgent, max_running=4, num_tokens=100)
    driver.add("large", [3] * 40, 30, priority=5)
    driver.step()
    driver.add("small", [4] * 10, 5, priority=0)
    driver.step()
    driver.add("high", [5] * 60, 30, priority=2)
    driver.step()
    assert {seq.id for seq in driver.scheduler.live.running} == {"large", "small"}


def test_a_policy_cannot_hold_everything_while_idle() -> None:
    driver = Driver(policy=Holding, num_tokens=1000)
    for i in range(3):
        driver.add(str(i), [i + 1] * 5, 4)
    while driver.scheduler.has_work:
        driver.step()
        assert driver.scheduler.num_running <= 1
    driver.check_outputs()


def test_switching_policies_between_steps_loses_no_request() -> None:
    driver = Driver(max_running=2, num_tokens=200)
    policies: list[type[SchedulePolicy]] = [LPM, Urgent, Holding, FCFS]
    for i in range(40):
        driver.add(str(i), [i % 20 + 1] * 10, 10, priority=i % 3)
        driver.step()
        driver.scheduler.policy = (policy := policies[i % 4])(policy.Options())
    driver.finish()
    driver.check_outputs()


def test_tenants_pay_double_for_output_tokens() -> None:
    driver = Driver(num_tokens=1000)
    driver.add("a", [1] * 10, 5, tenant="a")
    driver.add("b", [2] * 20, 1, tenant="b")
    driver.finish()
    assert driver.scheduler.tenants.served[:2].tolist() == [10 + 2 * 5, 20 + 2 * 1]


def test_a_late_tenant_has_no_saved_credit() -> None:
    tenants = Tenants()
    first = tenants.join("busy")
    tenants.join("other")
    tenants.charge(np.array([first]), 100.0)
    tenants.leave(tenants.join("other"))
    tenants.leave(1)
    late = tenants.join("late")
    assert tenants.served[late] == 100


def test_deferrable_tokens_are_charged_separately() -> None:
    driver = Driver(num_tokens=1000)
    driver.add("batch", [1] * 30, 5, tenant="a", deferrable=True)
    driver.add("live", [2] * 10, 1, tenant="a")
    driver.finish()
    assert driver.scheduler.tenants.served[:2].tolist() == [30 + 2 * 5, 10 + 2 * 1]


def test_a_late_tenant_starts_level_with_its_class() -> None:
    """Live requests start level with live ones, not with a paused batch."""
    tenants = Tenants()
    tenants.join("a", deferrable=True)
    live = tenants.join("a")
    tenants.charge(np.array([live]), 100.0)
    assert tenants.served[tenants.join("late")] == 100
    assert tenants.served[tenants.join("late", deferrable=True)] == 0


def test_idle_tenants_are_forgotten_and_active_ones_kept() -> None:
    tenants = Tenants()
    kept = tenants.join("kept")
    for i in range(3 * NUM_REMEMBERED):
        tenants.leave(tenants.join(f"{i}"))
    assert len(tenants.served) <= 2 * NUM_REMEMBERED
    assert tenants.join("kept") == kept
    assert tenants.num_open("kept") == 2


@pytest.mark.parametrize("piece", [8, 40])
def test_a_long_prompt_shares_its_step(piece: int) -> None:
    driver = Driver(budget=64, num_tokens=1000, max_running=8)
    driver.add("stream", [1] * 4, 100)
    driver.step()
    driver.add("long", [2] * 300, 2)
    driver.add("short", [3] * 20, 2)
    plan = driver.scheduler.schedule(piece=piece)
    assert {p.seq.id: p.count for p in plan.parts} == {
        "stream": 1,
        "long": piece,
        "short": min(20, 64 - piece),
    }


def test_a_long_prompt_fills_steps_without_decodes() -> None:
    driver = Driver(budget=64, num_tokens=1000)
    driver.add("long", [2] * 300, 2)
    assert [p.count for p in driver.scheduler.schedule(piece=8).parts] == [64]


class Shown(Priority):
    """Keeps what it was shown of running requests, and of a waiting one at the same time."""

    shown: tuple[Waiting, Running]

    def give_way(self, waiting: Waiting, place: int, running: Running, figures: Figures) -> Places:
        type(self).shown = waiting, running
        return super().give_way(waiting, place, running, figures)


def test_running_requests_have_times_and_fields() -> None:
    driver = Driver(policy=Shown, max_running=2, num_tokens=1000)
    driver.add("a", [2] * 5, 30, timeout_s=60, fields={"speed": 3, "name": "x"})
    driver.add("b", [3] * 5, 30, fields={"speed": True})
    driver.step()
    driver.add("c", [4] * 5, 30, priority=1, fields={"speed": 10**400})
    driver.step()
    waiting, running = Shown.shown
    first = int(running.arrival.argmin())
    assert 59 < running.time_left[first] <= 60
    assert running.time_left[1 - first] == np.inf
    assert running.time_left[first] + running.waited[first] == pytest.approx(60)
    assert (running.waited > waiting.waited[0]).all()
    assert running.field("speed")[first] == 3
    assert np.isnan(running.field("speed")[1 - first])
    assert np.isnan(running.field("name")).all()
    assert np.isnan(running.field("none")).all()
    assert waiting.field("speed").tolist() == [np.inf]


def test_field_columns_follow_reused_places() -> None:
    table = SequenceTable(2)
    seqs = [
        SequenceState(
            Request(
                id=str(i), prompt=[1], sampling=SamplingParams(max_tokens=1), fields={"x": i} if i % 2 else {}
            ),
            i,
            table=table,
        )
        for i in range(2)
    ]
    assert np.array_equal(table.field_column("x")[[seq.index for seq in seqs]], [np.nan, 1], equal_nan=True)
    table.remove(seqs[1].index)
    more = [
        SequenceState(
            Request(
                id=str(i), prompt=[1], sampling=SamplingParams(max_tokens=1), fields={"x": i} if i > 3 else {}
            ),
            i,
            table=table,
        )
        for i in range(2, 6)
    ]
    found = table.field_column("x")[[seq.index for seq in more]]
    assert np.array_equal(found, [np.nan, np.nan, 4, 5], equal_nan=True)
