"""Whoever watches sees each step once, with what runs and waits; without watchers nothing is kept."""

from __future__ import annotations

import pytest

from llmfw.core.base.steps_view import StepsView
from llmfw.core.schedule.scheduler import Scheduler
from llmfw.core.schedule.step_watch import MAX_RUNNING, MAX_STEPS, MAX_WAITING, WATCHED_S, StepWatch

from .driver import Driver


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def watched(driver: Driver, clock: Clock) -> Scheduler:
    scheduler = driver.scheduler
    scheduler._watch = StepWatch(clock)
    return scheduler


def look(scheduler: Scheduler, after: int = 0) -> StepsView:
    return scheduler.view_steps(after)


def test_nothing_is_kept_without_watchers(clock: Clock) -> None:
    driver = Driver()
    scheduler = watched(driver, clock)
    driver.add("a", [1] * 9, 4)
    driver.step()
    assert look(scheduler).steps == []
    driver.step()
    assert len(look(scheduler).steps) == 1
    clock.now += 2 * WATCHED_S
    driver.step()
    assert look(scheduler).steps == []


def test_steps_say_what_they_compute(clock: Clock) -> None:
    driver = Driver(budget=8)
    scheduler = watched(driver, clock)
    look(scheduler)
    driver.add("a", [1] * 9, 4)
    for _ in range(3):
        driver.step()
    found = look(scheduler)
    assert [(step.number, step.requests, step.counts, step.kinds) for step in found.steps] == [
        (1, [0], [8], [1]),
        (2, [0], [1], [1]),
        (3, [0], [1], [0]),
    ]
    [running] = found.running
    assert (running.number, running.id, running.prompt_tokens, running.num_tokens) == (0, "a", 9, 11)
    assert running.reason == ""
    assert [step.number for step in look(scheduler, after=2).steps] == [3]
    assert [step.number for step in look(scheduler, after=99).steps] == [
        1,
        2,
        3,
    ]  # of an engine before this one


def test_steps_share_equal_lists_of_requests(clock: Clock) -> None:
    """So that a question about 200 steps of 500 requests looks at few numbers."""
    driver = Driver()
    scheduler = watched(driver, clock)
    look(scheduler)
    driver.add("a", [1] * 4, 9)
    driver.add("b", [1] * 4, 2)
    for _ in range(6):
        driver.step()
    lists = [step.requests for step in look(scheduler).steps]
    assert [sorted(each) for each in lists] == [[0, 1], [0, 1], [0], [0], [0], [0]]
    assert len({id(each) for each in lists}) <= 3


def test_waiting_requests_have_a_reason(clock: Clock) -> None:
    driver = Driver(max_running=1)
    scheduler = watched(driver, clock)
    look(scheduler)
    for name in ("a", "b", "c"):
        driver.add(name, [1] * 4, 20)
    driver.step()
    driver.step()
    found = look(scheduler)
    assert [(each.id, each.reason) for each in found.waiting] == [
        ("b", "no place: 1 requests run"),
        ("c", "others come first"),
    ]
    assert (found.num_waiting, [each.id for each in found.running]) == (2, ["a"])


def test_requests_that_have_ended_are_named(clock: Clock) -> None:
    driver = Driver()
    scheduler = watched(driver, clock)
    look(scheduler)
    driver.add("a", [1] * 4, 1)
    driver.step()
    assert not scheduler.has_work
    assert [each.id for each in look(scheduler).ended] == ["a"]
    assert look(scheduler, after=1).ended == []


def test_what_is_kept_is_bounded(clock: Clock) -> None:
    driver = Driver(max_running=2, num_tokens=2048)
    scheduler = watched(driver, clock)
    look(scheduler)
    for i in range(MAX_WAITING + 9):
        driver.add(str(i), [1, 2], MAX_STEPS)
    for _ in range(MAX_STEPS + 9):
        driver.step()
    found = look(scheduler)
    assert len(found.steps) == MAX_STEPS
    assert len(found.waiting) == MAX_WAITING < found.num_waiting
    assert len(found.running) <= MAX_RUNNING
