"""Sequences start from snapshots of states where they can, and never from a wrong one.

`HashedModel` stands for the storage: each slot holds the length and the hash of the prefix that its state was computed
from, and each step checks the state from which a sequence continues.
"""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from llmfw.core.base.control import PinPrefix
from llmfw.core.base.request import FinishReason
from llmfw.core.schedule import sequence_states
from llmfw.core.schedule.cache.snapshot_cache import SnapshotCache
from llmfw.core.schedule.sequence_states import LEAST_OWN, LEAST_SAVED, LONG_END

from ...length import of_length
from .driver import Driver
from .test_everything import EverythingDriver

SHARED = [i % 20 + 1 for i in range(300)]
AT_ONCE = 500


def stateful(num_snapshots: int = 10, **settings: object) -> Driver:
    return Driver(**({"num_tokens": 2000, "num_snapshots": num_snapshots} | settings))  # type: ignore[arg-type]


def cached(driver: Driver, *prompts: list[int], max_tokens: int = 2) -> list[int]:
    """Return how many cached tokens each prompt finds, one after another."""
    names = [f"{len(driver.requests)} {i}" for i in range(len(prompts))]
    for name, prompt in zip(names, prompts, strict=True):
        driver.add(name, prompt, max_tokens)
        driver.finish()
    driver.check_outputs()
    return [driver.cached[name] for name in names]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("budget", "page_size"), [(16, 1), (64, 1), (1000, 1), (64, 4)])
def test_a_shared_prefix_hits_from_the_third_time(budget: int, page_size: int, overlap: bool) -> None:
    driver = stateful(budget=budget, page_size=page_size, overlap=overlap)
    prompts = [[*SHARED, first, *range(1, 20)] for first in range(1, 6)]
    assert cached(driver, *prompts) == [0, 0, 300, 300, 300]


@pytest.mark.parametrize(("page_size", "expected"), [(1, 99), (16, 96)])
def test_a_repeated_prompt_computes_its_last_page(page_size: int, expected: int) -> None:
    driver = stateful(page_size=page_size)
    assert cached(driver, SHARED[:100], SHARED[:100]) == [0, expected]


@pytest.mark.parametrize("overlap", [False, True])
def test_a_chat_goes_on_where_its_answer_ended(overlap: bool) -> None:
    driver = stateful(overlap=overlap)
    prompt = SHARED[:50]
    for turn in range(4):
        [found] = cached(driver, prompt, max_tokens=30)
        assert found == (len(prompt) - 1 - 9 if turn else 0)
        prompt = prompt + driver.output[list(driver.output)[-1]] + [1] * 9


def test_a_turn_without_its_reasoning_hits() -> None:
    """Templates leave out the reasoning of earlier turns, and the mark at the prompt's end at which it starts."""
    driver, mark, expected = stateful(num_tokens=20_000), [18, 19, 20], 0
    prompt: list[int] = []
    for first in range(1, 4):
        prompt = [*prompt, first, *SHARED * 7]
        assert cached(driver, prompt + mark, max_tokens=30) == [expected]
        expected = len(prompt + mark) - LONG_END
        answer = driver.output[list(driver.output)[-1]][-5:]
        prompt = [*prompt, mark[0], *answer]


@pytest.mark.parametrize("overlap", [False, True])
def test_snapshots_cost_no_further_step(overlap: bool) -> None:
    """Prompts with nothing to reuse take as many steps, of as many tokens, as without a prefix cache."""

    def sizes(driver: Driver) -> list[int]:
        for i in range(4):
            driver.add(str(i), [i + 1] * (50 + i), 20)
        found = []
        while driver.scheduler.has_work or driver.launched:
            found.append(driver.step().num_tokens)
        return found

    settings = {"budget": 16, "num_tokens": 2000, "overlap": overlap}
    assert sizes(stateful(**settings)) == sizes(Driver(cached=False, **settings))


def test_prompts_that_save_little_take_no_slot() -> None:
    least = SHARED[: LEAST_OWN + 1]
    assert cached(stateful(), least, least) == [0, LEAST_OWN]
    # The second one sees that prompts start alike, and takes it for the third.
    assert cached(stateful(), least[:-1], least[:-1], least[:-1], max_tokens=1) == [0, 0, LEAST_OWN - 1]
    fewest = SHARED[:LEAST_SAVED]
    assert cached(stateful(), fewest, fewest, fewest, max_tokens=1) == [0, 0, 0]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("budget", [16, 1000])
def test_simultaneous_prompts_compute_a_shared_prefix_once(budget: int, overlap: bool) -> None:
    driver = stateful(budget=budget, overlap=overlap)
    for i in range(6):
        driver.add(str(i), [*SHARED[:100], i + 1, 7], 2)
    total = 0
    while driver.scheduler.has_work or driver.launched:
        total += sum(p.count for p in driver.step().prefills)
    driver.finish()
    driver.check_outputs()
    assert list(driver.cached.values()) == [0, *[100] * 5]
    assert total == 102 + 5 * 2


@pytest.mark.parametrize("overlap", [False, True])
def test_a_prefix_without_snapshot_is_computed_once_more(overlap: bool) -> None:
    """Of requests that come together, one takes the snapshot for all, though each goes on differently."""
    driver = stateful(budget=64, overlap=overlap)
    cached(driver, [*SHARED, 1, 1])
    for i in range(6):
        driver.add(str(i), [*SHARED, i + 2, 7], 2)
    total = 0
    while driver.scheduler.has_work or driver.launched:
        total += sum(p.count for p in driver.step().prefills)
    driver.finish()
    driver.check_outputs()
    assert [driver.cached[str(i)] for i in range(6)] == [0, *[300] * 5]
    assert total == 302 + 5 * 2


def test_followers_compute_alone_if_no_slot_is_left() -> None:
    driver = stateful(num_snapshots=0, budget=16)
    for i in range(3):
        driver.add(str(i), [*SHARED[:100], i + 1], 2)
    driver.finish()
    driver.check_outputs()
    assert list(driver.cached.values()) == [0, 0, 0]


def test_a_follower_takes_over_from_an_aborted_leader() -> None:
    driver = stateful(budget=16)
    for i in range(3):
        driver.add(str(i), [*SHARED[:100], i + 1], 2)
    for _ in range(3):
        driver.step()
    driver.abort("0")
    driver.finish()
    driver.check_outputs()
    assert driver.cached["2"] == 100


def test_one_salt_s_states_do_not_serve_another() -> None:
    driver = stateful()
    for salt in ("a", "b", "a"):
        driver.add(f"{len(driver.requests)}", SHARED[:100], 2, cache_salt=salt)
        driver.finish()
    assert list(driver.cached.values()) == [0, 0, 99]


def test_a_flush_drops_all_snapshots() -> None:
    driver = stateful()
    cached(driver, SHARED)
    driver.pages.cache.evict(driver.pages.cache.num_evictable_pages)
    assert isinstance(driver.pages.cache, SnapshotCache)
    assert driver.pages.cache.slots.num_free == 10
    assert cached(driver, SHARED) == [0]


def test_a_pinned_prefix_keeps_its_snapshot() -> None:
    driver = EverythingStateful(random.Random(1), 1, overlap=False, num_snapshots=2, num_tokens=1024)
    driver.keeper.pin(PinPrefix(SHARED[:100], 50.0))
    assert cached(driver, SHARED[:200]) == [0]
    for first in range(1, 9):  # they compete for the other slot
        cached(driver, [first + 1] * 60)
        assert cached(driver, [*SHARED[:100], first]) == [100]


class EverythingStateful(EverythingDriver):
    """As its base, for a model with states: longer prefixes, chats, choices, and steps that fail."""

    def __init__(
        self, rng: random.Random, page_size: int, overlap: bool, num_snapshots: int, num_tokens: int
    ) -> None:
        super().__init__(rng, page_size, overlap, num_snapshots=num_snapshots, num_tokens=num_tokens)
        self.shared = [self.tokens(60) for _ in range(3)]
        self.num_failed = 0

    def act(self) -> None:
        if self.rng.random() < 0.01:
            self.fail()
        else:
            super().act()

    def prompt(self) -> list[int]:
        rng = self.rng
        prompt = rng.choice(self.shared)[: rng.randrange(61)]
        if rng.random() < 0.2 and self.requests:
            before = rng.choice(list(self.requests.values()))
            prompt = list(before.prompt) + self.output[before.id]
        return (prompt + self.tokens(rng.randrange(1, 9)))[: rng.randrange(1, self.max_len)]

    def fail(self) -> None:
        """Let a step fail before it has computed anything, or after it has computed everything."""
        plan = self.plan()
        if not plan.sequences:
            return
        self.num_failed += 1
        if self.rng.random() < 0.5:
            self.model.run(plan)
        self.scheduler.withdraw(plan)
        while self.launched:
            for event in self.scheduler.commit(*self.launched.popleft()):
                self._take(event)
        self.ended |= dict.fromkeys(self.scheduler.give_up(plan), FinishReason.ABORT)


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_random_operations_never_use_a_wrong_state(
    page_size: int, overlap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{page_size} {overlap}")
    most = int(os.environ.get("LLMFW_TEST_OPERATIONS") or of_length(3_000, 20_000)) // 6
    num_operations, seen = 0, np.zeros(4, dtype=int)
    while num_operations < most or not seen.all():
        assert num_operations < 50 * most, "hits, evictions, failures or retractions never happen"
        monkeypatch.setattr(sequence_states, "LEAST_SAVED", rng.choice([1, 4, 16]))
        monkeypatch.setattr(sequence_states, "LEAST_OWN", rng.choice([1, 16, 64]))
        monkeypatch.setattr(sequence_states, "LONG", rng.choice([8, 40, 2048]))
        monkeypatch.setattr(sequence_states, "LONG_END", rng.choice([3, 16]))
        num_snapshots, num_tokens = rng.choice([0, 1, 2, 5, 20]), rng.choice([128, 256, 512])
        driver = EverythingStateful(rng, page_size, overlap, num_snapshots, num_tokens)
        for _ in range(AT_ONCE):
            driver.act()
        driver.finish()
        driver.check_outputs()
        assert isinstance(driver.pages.cache, SnapshotCache)
        num_operations += AT_ONCE
        num_hits = sum(num > 0 for num in driver.cached.values())
        evicted, retracted = driver.pages.cache.slots.num_evicted, driver.scheduler.num_retractions
        seen += num_hits, evicted, driver.num_failed, retracted
