"""Prompts that do not fit into a step are computed in pieces, beside others."""

from __future__ import annotations

import random

import pytest

from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.schedule.plan import BatchPlan
from llmfw.core.schedule.scheduler import PUBLISHED_AT_ONCE
from llmfw.plugins.policies.fcfs import FCFS
from llmfw.plugins.policies.lpm import LPM

from ...length import of_length
from .driver import VOCAB_SIZE, Driver, drive_at_random

BUDGET = 64


class PieceDriver(Driver):
    """Allows a random piece in each step, also none, and checks that no step has more of long prompts."""

    def __init__(self, rng: random.Random, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.rng = rng
        self.num_cut = 0

    def plan(self) -> BatchPlan:
        piece = self.rng.choice([0, 1, 3, 8])
        plan = self.scheduler.schedule(piece=piece)
        if any(p.samples and not p.is_prefill and not p.seq.request.deferrable for p in plan.parts):
            num_long = sum(p.count for p in plan.prefills if p.seq.is_cut)
            assert num_long <= piece
            self.num_cut += num_long == piece > 0
        return plan


@pytest.mark.long
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("policy", [FCFS, LPM])
def test_pieces_of_any_size_keep_all_invariants(policy: type[SchedulePolicy], overlap: bool) -> None:
    rng = random.Random(f"{policy.__name__} {overlap}")
    num_cut = 0
    for _ in range(of_length(2, 12)):
        driver = PieceDriver(
            rng,
            policy=policy,
            page_size=rng.choice([1, 4, 16]),
            num_tokens=rng.choice([64, 256]),
            budget=rng.choice([7, 16]),
            max_running=rng.choice([3, 8]),
            overlap=overlap,
            share=rng.choice([0.0, 0.5]),
            conservativeness=rng.choice([0.05, 1.0]),
        )
        drive_at_random(driver, rng, 500, deferrable=0.3)
        driver.finish()
        driver.check_outputs()
        num_cut += driver.num_cut
    assert num_cut > 0


def counts(plan: BatchPlan) -> dict[str, int]:
    return {p.seq.id: p.count for p in plan.parts}


def test_long_prompts_share_one_piece() -> None:
    driver = Driver(budget=BUDGET, num_tokens=1000)
    driver.add("stream", [1] * 4, 100)
    driver.step()
    for i in range(2, 5):
        driver.add(f"long {i}", [i] * 200, 2)
    for _ in range(3):
        found = counts(driver.scheduler.schedule(piece=10))
        assert sum(count for name, count in found.items() if name != "stream") == 10


def test_short_prompts_overtake_even_without_decodes() -> None:
    driver = Driver(budget=BUDGET, num_tokens=1000)
    driver.add("long", [2] * 300, 2)
    assert counts(driver.scheduler.schedule(piece=8)) == {"long": BUDGET}
    driver.add("short", [3] * 20, 2)
    assert counts(driver.scheduler.schedule(piece=8)) == {"long": BUDGET // 2, "short": 20}


def test_scored_prompts_share_one_piece() -> None:
    driver = Driver(budget=BUDGET, num_tokens=1000)
    driver.add("stream", [1] * 4, 100)
    driver.step()
    for i in range(2, 8):
        driver.add(f"scored {i}", [i] * 8, 1, prompt_logprobs=20)
    driver.add("short", [9] * 20, 2)
    assert counts(driver.scheduler.schedule(piece=10)) == {
        "stream": 1,
        "scored 2": 8,
        "scored 3": 2,
        "short": 20,
    }


def test_scored_tokens_are_weighted_by_cost() -> None:
    driver = Driver(budget=BUDGET, num_tokens=1000)
    for i in range(2, 8):
        driver.add(f"scored {i}", [i] * 10, 1, prompt_logprobs=20)
    plan = driver.scheduler.schedule(score_cost=4.0)
    assert counts(plan) == {"scored 2": 10, "scored 3": BUDGET // 4 - 10}
    assert driver.scheduler.live.num_waiting_unscored == 0


def test_scored_prompts_take_half_a_step() -> None:
    driver = Driver(budget=BUDGET, num_tokens=1000)
    driver.add("scored", [2] * 60, 1, prompt_logprobs=20)
    driver.add("short", [3] * 30, 2)
    assert counts(driver.scheduler.schedule(piece=8, score_cost=2.0)) == {"scored": BUDGET // 4, "short": 30}


def test_deferrable_prompts_alone_are_not_split() -> None:
    driver = Driver(budget=BUDGET, num_tokens=1000)
    driver.add("batch", [1] * 4, 100, deferrable=True)
    driver.step()
    driver.add("long", [2] * 300, 2, deferrable=True)
    assert counts(driver.scheduler.schedule(piece=8)) == {"batch": 1, "long": BUDGET}


def test_small_pieces_make_few_cache_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(budget=BUDGET, num_tokens=3000)
    inserted: list[int] = []
    insert = driver.pages.cache.insert
    monkeypatch.setattr(
        driver.pages.cache, "insert", lambda *args, **kw: inserted.append(len(args[1])) or insert(*args, **kw)
    )
    rng = random.Random(0)
    prompt = [rng.randrange(1, VOCAB_SIZE) for _ in range(2000)]
    driver.add("long", prompt, 2)
    driver.finish()
    driver.check_outputs()
    assert inserted[0] == PUBLISHED_AT_ONCE
    assert len(inserted) < 3 + len(prompt) / PUBLISHED_AT_ONCE
