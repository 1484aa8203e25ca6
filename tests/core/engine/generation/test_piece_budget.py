"""A long prompt is computed in pieces that those that decode beside it hardly notice, and it goes on all the same."""

from __future__ import annotations

import itertools
import random
import statistics
from collections import deque

import pytest

from llmfw.core.base.errors import ConfigError
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.piece_budget import LEAST_PIECE, ORDINARY_EVERY, SCORE_COST, PieceBudget
from llmfw.core.schedule.plan import BatchPlan, PlannedSequence
from llmfw.core.schedule.sequence import SequenceState

from ....length import also_each
from ...schedule.plans import plan_of

STRETCH = 1.5
SEQ = SequenceState(Request(id="a", prompt=[1], sampling=SamplingParams(max_tokens=5)), 0)
LONG = 100_000


class Machine:
    """A budget, and a machine whose steps take a time for themselves, for each that decodes, and for a piece: for
    each of its tokens, and for each of its tokens and each that is there already, which also cost time to read.

    Args:
        fixed: what any piece takes besides.
        late: so many steps run before one is learned of.
    """

    def __init__(
        self,
        base: float,
        token: float,
        pair: float,
        read: float = 0.0,
        *,
        fixed: float = 0.0,
        noise: float = 0.0,
        late: int = 0,
    ) -> None:
        self.budget = PieceBudget(8192, stretch=STRETCH)
        self.base, self.token, self.pair, self.read, self.noise = base, token, pair, read, noise
        self.fixed = fixed
        self.rng = random.Random(0)
        self.launched: deque[tuple[BatchPlan, float]] = deque()
        self.late = late

    def ordinary(self, num_decoding: int) -> float:
        return self.base * (1 + num_decoding / 64)

    def step(self, num_decoding: int, piece: int = 0, context: int = 0, *, samples: bool = False) -> float:
        parts = [PlannedSequence(SEQ, 0, 9, 1, samples=True, is_new=False, is_prefill=False)] * num_decoding
        if piece:
            parts.append(
                PlannedSequence(SEQ, 0, context, piece, samples=samples, is_new=False, is_prefill=True)
            )
        seconds = self.ordinary(num_decoding) + piece * (self.token + self.pair * context)
        seconds += self.read * context + self.fixed if piece else 0.0
        seconds *= 1 + self.noise * self.rng.random()
        self.launched.append((plan_of(parts), seconds))
        if len(self.launched) > self.late:
            self.budget.learn(*self.launched.popleft())
        return seconds

    def prefill(self, num_decoding: int, length: int = LONG, context: int = 0) -> list[tuple[int, float]]:
        """Compute a prompt beside others; return sizes and seconds of the steps."""
        steps = []
        while context < length:
            piece = self.budget.largest()
            assert piece is not None
            piece = min(piece, length - context)
            steps.append((piece, self.step(num_decoding, piece, context)))
            context += piece
        return steps


ALL = list(itertools.product((0.005, 0.05), (1e-5, 2e-4), (0.0, 2e-9), (0, 2)))
MACHINES = [
    each for each in ALL if sum(figure > least for figure, least in zip(each, ALL[0], strict=True)) % 2
]
"""Half of them: any three figures are there in all their combinations."""
OTHERS = [each for each in ALL if each not in MACHINES]


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(0.99 * len(seconds))]


@pytest.mark.parametrize(("base", "token", "pair", "late"), [*MACHINES, *also_each(*OTHERS)])
def test_a_long_prompt_hardly_slows_streams(base: float, token: float, pair: float, late: int) -> None:
    """This holds on machines of any speed."""
    machine = Machine(base, token, pair, 1e-8, noise=0.2, late=late)
    alone = [machine.step(16) for _ in range(300)]
    beside = machine.prefill(16)
    assert p99([seconds for _, seconds in beside]) < 2 * p99(alone)
    # Nor is it given less than it may have: half of what the stretch allows, at least, over the whole of it.
    assert sum(s - machine.ordinary(16) for _, s in beside) > 0.5 * (STRETCH - 1) * sum(
        machine.ordinary(16) for _ in beside
    )


def test_slow_machines_use_the_smallest_piece() -> None:
    machine = Machine(0.01, 0.01, 0.0)
    steps = machine.prefill(8, 2000)
    sizes = [size for size, _ in steps]
    assert {*sizes[:-1]} == {0, LEAST_PIECE}
    assert sizes.count(0) <= 2 + len(sizes) / ORDINARY_EVERY


def test_a_piece_takes_at_most_half_the_budget() -> None:
    machine = Machine(0.01, 1e-9, 0.0)
    machine.budget = PieceBudget(40, stretch=STRETCH)
    assert max(size for size, _ in machine.prefill(8, 2000)) == 20
    machine.budget = PieceBudget(5, stretch=STRETCH)
    assert max(size for size, _ in machine.prefill(8, 200)) == 2


def test_piece_size_follows_the_number_of_decodes() -> None:
    machine = Machine(0.01, 1e-4, 0.0)
    for num_decoding in (1, 64, 4, 128, 1):
        steps = machine.prefill(num_decoding, 20_000)
        allowed = STRETCH * machine.ordinary(num_decoding)
        settled = [seconds for size, seconds in steps[len(steps) // 2 : -1] if size]
        assert max(settled) < 1.1 * allowed
        assert min(settled) > 0.8 * allowed


def test_piece_size_follows_the_machine_s_speed() -> None:
    machine = Machine(0.01, 1e-4, 0.0)
    machine.prefill(8, 20_000)
    for factor in (4, 1 / 4):
        machine.base *= factor
        steps = machine.prefill(8, 60_000)
        too_long = [seconds for _, seconds in steps if seconds > 1.1 * STRETCH * machine.ordinary(8)]
        assert len(too_long) <= 1  # the first one
        assert max(seconds for _, seconds in steps[-9:]) > 0.9 * STRETCH * machine.ordinary(8)


def test_a_disturbed_step_changes_little() -> None:
    machine = Machine(0.01, 1e-4, 0.0)
    usual = machine.prefill(8, 20_000)[-2][0]
    machine.base, before = 1.0, machine.base
    machine.step(8)
    machine.step(8, usual, 10_000)
    machine.base = before
    assert [machine.budget.largest() for _ in range(3)] == [pytest.approx(usual, rel=0.2)] * 3


def test_cached_long_prompts_start_with_small_pieces() -> None:
    machine = Machine(0.01, 1e-5, 1e-9)
    machine.prefill(8, 4000)
    machine.step(8, LEAST_PIECE, 90_000)  # whatever the first one is
    assert max(seconds for _, seconds in machine.prefill(8, LONG, 90_016)) < 1.1 * STRETCH * machine.ordinary(
        8
    )


def test_many_waiting_prompts_enlarge_pieces() -> None:
    machine = Machine(0.01, 1e-4, 0.0)
    usual = machine.prefill(8, 20_000)[-2][0]
    assert machine.budget.largest(1) == pytest.approx(2 * usual, rel=0.2)  # grows to twice what was measured


def test_unrepresentative_steps_are_not_learned() -> None:
    """Steps without decodes, and steps at the end of a prompt."""
    machine = Machine(0.01, 1e-4, 0.0)
    usual = machine.prefill(8, 20_000)[-2][0]
    machine.token = 1.0
    machine.step(0, 512, 10_000)
    machine.step(8, 300, 0, samples=True)
    machine.token = 1e-4
    machine.step(8, usual, 10_000)
    assert machine.budget.largest() == pytest.approx(usual, rel=0.2)


@pytest.mark.parametrize("fixed", [0.005, 0.05])
def test_expensive_pieces_have_a_worthwhile_size(fixed: float) -> None:
    machine = Machine(0.01, 1e-4, 0.0, fixed=fixed)
    for context in range(0, LONG, 512):
        machine.step(0, 512, context)
    steps = machine.prefill(2, LONG)
    typical = statistics.median_low(size for size, _ in steps)
    # A token takes at most three times what it takes in a whole step, so the time is at most half as much again.
    assert (fixed + 1e-4 * typical) / typical < 1.1 * 3 * ((0.01 + fixed) / 512 + 1e-4)
    assert statistics.median(s for _, s in steps) < 1.1 * max(
        STRETCH * machine.ordinary(2), 0.01 + 1.5 * fixed
    )


def test_noise_does_not_enlarge_pieces() -> None:
    machine = Machine(0.01, 1e-4, 0.0)
    for context in range(0, LONG, 512):
        machine.step(0, 512, context)
    machine.noise = 4.0
    sizes = [size for size, _ in machine.prefill(8, LONG)]
    assert p99([1e-4 * size for size in sizes]) < 2 * machine.ordinary(8)


def scored_step(num_decoding: int, piece: int) -> BatchPlan:
    request = Request(id="s", prompt=[1] * 500, sampling=SamplingParams(max_tokens=5), prompt_logprobs=20)
    decoding = PlannedSequence(SEQ, 0, 9, 1, samples=True, is_new=False, is_prefill=False)
    scored = PlannedSequence(SequenceState(request, 0), 0, 0, piece, True, is_new=False, is_prefill=True)
    return plan_of([decoding] * num_decoding + [scored])


def test_scored_prompts_are_measured_separately() -> None:
    machine = Machine(0.01, 1e-4, 0.0)
    plain = machine.prefill(8, 20_000)[-2][0]
    ordinary = machine.ordinary(8)
    machine.budget.learn(scored_step(8, LEAST_PIECE), ordinary + 2e-4 * LEAST_PIECE)
    for _ in range(9):
        size = machine.budget.largest()
        assert size is not None
        machine.budget.learn(scored_step(8, size), ordinary + 2e-4 * size) if size else machine.step(8)
    assert size == pytest.approx(plain / 2, rel=0.1)


def test_the_cost_of_a_scored_token_is_measured() -> None:
    machine = Machine(1e-9, 1e-4, 0.0)
    assert machine.budget.score_cost == SCORE_COST
    machine.step(0, 512)
    machine.budget.learn(scored_step(0, 400), 400 * 3e-4)
    assert machine.budget.score_cost == pytest.approx(3)


def test_stretch_zero_disables_and_below_one_is_refused() -> None:
    assert PieceBudget(512, stretch=0).largest() is None
    with pytest.raises(ConfigError, match=r"--prefill-stretch is 0\.5"):
        PieceBudget(512, stretch=0.5)
