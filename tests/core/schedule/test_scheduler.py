"""The scheduler with cache and pool, driven without a model."""

from __future__ import annotations

import random

import pytest

from llmfw.core.base.request import Thinking
from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.schedule.new_token_ratio import NewTokenRatio
from llmfw.plugins.policies.fcfs import FCFS
from llmfw.plugins.policies.lpm import LPM

from ...length import also_each, of_length
from .driver import VOCAB_SIZE, Driver, drive_at_random


@pytest.mark.parametrize(
    ("policy", "page_size", "overlap"),
    [
        *((FCFS, 1, False), (FCFS, 4, True), (FCFS, 16, False)),  # each two together
        *((LPM, 1, True), (LPM, 4, False), (LPM, 16, True)),
        *also_each((FCFS, 1, True), (FCFS, 4, False), (FCFS, 16, True)),
        *also_each((LPM, 1, False), (LPM, 4, True), (LPM, 16, False)),
    ],
)
def test_random_operations_keep_invariants(
    policy: type[SchedulePolicy], page_size: int, overlap: bool
) -> None:
    rng = random.Random(f"{policy.__name__} {page_size} {overlap}")
    num_operations = num_retractions = 0
    while num_operations < of_length(2_400, 24_000) / 12 or not num_retractions:
        assert num_operations < 20_000, "no sequence is ever retracted"
        driver = Driver(
            policy=policy,
            page_size=page_size,
            num_tokens=rng.choice([64, 128, 256]),
            budget=rng.choice([1, 7, 16, 64]),
            max_running=rng.choice([1, 3, 8]),
            overlap=overlap,
            cached=rng.random() < 0.9,
            chunked=rng.random() < 0.8,
            conservativeness=rng.choice([0.05, 1.0]),
        )
        num_operations += drive_at_random(driver, rng, 200)
        driver.finish()
        driver.check_outputs()
        num_retractions += driver.scheduler.num_retractions


def test_forced_tokens_are_computed_together_within_the_budget() -> None:
    driver = Driver(budget=4)
    driver.add("a", [1] * 3, 50, thinking=Thinking(end=tuple(range(30, 40)), is_open=True, budget=2))
    counts = [[p.count for p in driver.step().parts] for _ in range(6)]
    assert counts == [[3], [1], [4], [4], [3], [1]]
    driver.finish()
    driver.check_outputs()


def test_a_full_pool_retracts_and_loses_nothing() -> None:
    driver = Driver(num_tokens=200, max_running=8)
    for i in range(8):
        driver.add(str(i), [i + 1] * 10, 100)
    driver.finish()
    driver.check_outputs()
    assert driver.scheduler.num_retractions > 0


def test_retraction_takes_the_least_output_first() -> None:
    """Afterwards the scheduler expects longer outputs."""
    driver = Driver(num_tokens=100, max_running=4, conservativeness=0.1)
    before = driver.scheduler.live.ratio.value
    driver.add("old", [1] * 10, 60)
    for _ in range(20):
        driver.step()
    driver.add("new", [2] * 10, 50)
    for _ in range(40):
        driver.step()
    assert [seq.id for seq in driver.scheduler.live.waiting] == ["new"]
    assert driver.scheduler.num_retractions == 1
    assert driver.scheduler.live.ratio.value > before


def test_the_ratio_after_retraction_matches_the_log() -> None:
    # 136 sequences of 128 tokens stay, with 101.6 tokens each: SGLang's log goes on with 0.9501.
    ratio = NewTokenRatio()
    assert ratio.value == pytest.approx(0.7)

    class Stays:
        max_tokens = 128

        def __init__(self, num_output: int) -> None:
            self.num_output = num_output

    _, after = ratio.correct([Stays(102)] * 82 + [Stays(101)] * 54)  # type: ignore[list-item]
    assert after == pytest.approx(0.9501, abs=1e-4)


def test_prompts_are_chunked_to_the_budget() -> None:
    driver = Driver(budget=16)
    driver.add("first", [1] * 5, 50)
    driver.step()
    driver.add("long", [2] * 40, 5)
    counts = [[(p.seq.id, p.count) for p in driver.step().parts] for _ in range(3)]
    assert counts == [[("first", 1), ("long", 16)], [("first", 1), ("long", 16)], [("first", 1), ("long", 8)]]


def test_a_prompt_is_not_cut_without_chunking() -> None:
    driver = Driver(budget=16, chunked=False)
    driver.add("short", [1] * 4, 2)
    driver.add("long", [2] * 40, 2)
    first, second = driver.step(), driver.step()
    assert [p.count for p in first.parts] == [4]
    assert [p.count for p in second.parts if p.is_prefill] == [40]


def test_a_shared_prefix_is_computed_once() -> None:
    driver = Driver()
    driver.add("a", [1] * 20, 2)
    driver.finish()
    driver.add("b", [1] * 20 + [2, 3], 2)
    assert [p.count for p in driver.step().parts] == [2]
    driver.finish()
    assert driver.cached == {"a": 0, "b": 20}


def test_a_fully_cached_prompt_computes_one_token() -> None:
    driver = Driver()
    driver.add("a", [1] * 20, 2)
    driver.finish()
    driver.add("b", [1] * 20, 2)
    assert [p.count for p in driver.step().parts] == [1]


def test_an_aborted_request_frees_its_pages_immediately() -> None:
    driver = Driver(overlap=True)
    driver.add("a", [1] * 20, 50)
    driver.step()
    driver.abort("a")
    assert driver.pages.num_available_tokens == driver.max_len


def test_one_request_may_fill_the_whole_pool() -> None:
    driver = Driver(num_tokens=64, page_size=16)
    driver.add("a", [1] * 30, 34)
    driver.finish()
    driver.check_outputs()


def test_lpm_admits_the_longest_cached_prefix_first() -> None:
    driver = Driver(policy=LPM, max_running=1)
    driver.add("warm", [1] * 20, 1)
    driver.finish()
    driver.add("cold", [2] * 20, 1)
    driver.add("hit", [1] * 20 + [3], 1)
    assert [p.seq.id for p in driver.step().parts] == ["hit"]


def test_single_token_sequences_come_first() -> None:
    driver = Driver(overlap=True)
    rng = random.Random(0)
    for i in range(300):
        if i % 10 == 0:
            driver.add(str(i), [rng.randrange(VOCAB_SIZE) for _ in range(rng.randrange(1, 40))], 20)
        plan = driver.step()
        counts = [p.count for p in plan.parts]
        assert all(count == 1 for count in counts[: plan.step.num_single])
        assert all(count > 1 for count in counts[plan.step.num_single :])
