"""Steps of deferrable sequences are short while live ones come, and whole when none do."""

from __future__ import annotations

import random

import pytest

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.deferrable_budget import (
    FRACTION,
    LEAST_STRETCH,
    LIVE_FOR_S,
    DeferrableBudget,
    StepTimes,
)
from llmfw.core.schedule.deferral import Limits
from llmfw.core.schedule.plan import PlannedSequence
from llmfw.core.schedule.sequence import SequenceState

from ...schedule.plans import plan_of

WHOLE = Limits(128, 512)


class Machine:
    """A budget, and a machine whose steps take a time for themselves and one for each sequence and token."""

    def __init__(
        self, base: float, each: float, num_ahead: int = 1, noise: float = 0.0, whole: Limits = WHOLE
    ) -> None:
        self.now = 0.0
        self.base, self.each, self.noise = base, each, noise
        self.budget = DeferrableBudget(whole, num_ahead=num_ahead, clock=lambda: self.now)
        self.rng = random.Random(0)

    def step(self, num_sequences: int, num_tokens: int) -> float:
        begun = self.budget.begin()
        seconds = self.base + self.each * (num_sequences + num_tokens)
        self.now += seconds * (1 + self.noise * self.rng.random())
        return self.budget.end(begun, num_sequences, num_tokens)

    def live(self, prompt: int = 30, output: int = 5) -> float:
        first = self.step(1, prompt)
        self.budget.note_live([first])
        for _ in range(output):
            self.step(1, 0)
            self.budget.note_live()
        return first

    def deferrable(self) -> float:
        limits = self.budget.limits()
        return self.step(min(limits.places, limits.tokens), 0)


def test_without_live_requests_steps_are_full() -> None:
    machine = Machine(0.002, 0.0001)
    assert machine.budget.limits() == WHOLE
    machine.live()
    assert machine.budget.limits() != WHOLE
    machine.now += LIVE_FOR_S + 1
    assert machine.budget.limits() == WHOLE


@pytest.mark.parametrize("base", [0.0001, 0.002, 0.01])
@pytest.mark.parametrize("each", [0.00001, 0.0005])
@pytest.mark.parametrize("num_ahead", [1, 2])
def test_deferrable_steps_take_little_of_a_first_token(base: float, each: float, num_ahead: int) -> None:
    """Deferrable work takes a bounded fraction of the time to first token, on machines of any speed."""
    machine = Machine(base, each, num_ahead, noise=0.2)
    for _ in range(20):
        machine.step(128, 0)  # the batch alone, before
    taken = []
    for _ in range(100):
        first = machine.live()
        taken += [machine.deferrable() for _ in range(3)]
    allowed = max(FRACTION * first / num_ahead, LEAST_STRETCH * (base + 2 * each))
    assert max(taken[150:]) < 1.4 * allowed
    largest = 1.2 * (base + each * WHOLE.places)
    assert min(taken[150:]) > 0.5 * min(allowed, largest)


@pytest.mark.parametrize("whole", [Limits(1, 1), Limits(1, 512), Limits(128, 1)])
def test_one_prompt_token_always_fits(whole: Limits) -> None:
    machine = Machine(0.1, 0.0001, whole=whole)
    machine.live()
    limits = machine.budget.limits()
    assert limits.places >= 1
    assert 1 <= limits.tokens - limits.tokens_per_place <= whole.tokens


def test_a_disturbed_step_changes_little() -> None:
    machine = Machine(0.002, 0.0001)
    for _ in range(50):
        machine.live()
        machine.deferrable()
    before = machine.budget.limits()
    machine.base, usual = 1.0, machine.base
    machine.deferrable()
    machine.base = usual
    assert machine.budget.limits().places > 0.5 * before.places


def test_step_size_grows_until_one_is_slow() -> None:
    times, size, tried = StepTimes(), 1, []
    for _ in range(12):
        times.learn(size, 0.001 * size)
        tried.append(size := times.largest_within(0.020))
    assert tried[:4] == [2, 4, 8, 16]
    assert 15 < tried[-1] <= 24


def test_waiting_for_the_previous_step_is_excluded() -> None:
    machine = Machine(1.0, 0.0)
    first = machine.budget.begin()
    second = machine.budget.begin()
    machine.now = 5.0
    assert machine.budget.end(first, 1, 0) == 5.0
    machine.now = 7.0
    assert machine.budget.end(second, 1, 0) == 2.0


def test_chunked_prefill_time_is_the_sum_of_steps() -> None:
    machine = Machine(0.0, 0.0)
    seq = SequenceState(Request(id="a", prompt=[1] * 20, sampling=SamplingParams(max_tokens=5)), 0)
    for start in (0, 10):
        begun = machine.budget.begin()
        machine.now += 1.0
        part = PlannedSequence(seq, 0, start, 10, samples=start == 10, is_new=start == 0, is_prefill=True)
        machine.budget.end_plan(plan_of([part]), begun)
    assert list(machine.budget._first_tokens) == [2.0]
