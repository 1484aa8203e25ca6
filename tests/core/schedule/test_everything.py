"""All that scheduling can do at once, at random: policies, page sizes, rules of eviction, salts, pins, switches, drafts.

The storage is one of hashes (`hashed_model`), so that a page that is shared wrongly, or freed while it is used, shows.
"""

from __future__ import annotations

import contextlib
import os
import random
from typing import Any

import pytest

from llmfw.core.base.control import PinPrefix
from llmfw.core.base.errors import RequestError
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.schedule.cache.keeper import CacheKeeper
from llmfw.core.schedule.cache.radix_cache import RadixCache
from llmfw.core.schedule.isolated_policy import IsolatedPolicy, load_policy
from llmfw.core.schedule.speculation import Speculation

from ...length import of_length
from .cache.rules import RULES, make_rule
from .driver import VOCAB_SIZE, Driver
from .lucky_drafter import speculation

POLICIES = {
    "fcfs": {},
    "lpm": {"policy.max_overtaken": "3"},
    "sjf": {"policy.max_overtaken": "3"},
    "priority": {},
    "fair": {},
}
NUM_OPERATIONS = int(os.environ.get("LLMFW_TEST_OPERATIONS") or of_length(6_000, 30_000))
"""`make soak` does a million."""
AT_ONCE = 500  # of these, of one driver


def draw_speculation(rng: random.Random) -> Speculation:
    """Return drafts of any quality."""
    chance, shy = rng.choice([0.2, 0.9]), rng.choice([0.0, 0.3])
    return speculation(rng, chance, shy=shy, max_draft=rng.choice([1, 5]), max_tokens=rng.choice([4, 16, 64]))


class EverythingDriver(Driver):
    """Adds, aborts, pins, unpins, flushes, switches policies, lets time pass, and steps."""

    def __init__(
        self,
        rng: random.Random,
        page_size: int,
        overlap: bool,
        num_snapshots: int | None = None,
        num_tokens: int | None = None,
    ) -> None:
        is_plain = overlap or num_snapshots is not None  # neither has drafts
        super().__init__(
            page_size=page_size,
            num_tokens=num_tokens or rng.choice([64, 128, 256]),
            num_snapshots=num_snapshots,
            budget=rng.choice([1, 7, 16, 64]),
            max_running=rng.choice([1, 3, 8]),
            overlap=overlap,
            chunked=rng.random() < 0.8,
            conservativeness=rng.choice([0.05, 1.0]),
            share=rng.choice([0.0, 0.5]),
            rule=make_rule(rng.choice(list(RULES))),
            speculation=None if is_plain or rng.random() < 0.5 else draw_speculation(rng),
        )
        assert isinstance(self.pages.cache, RadixCache)
        self.rng = rng
        self.now = 0.0
        self.policies: set[IsolatedPolicy] = set()
        self.pins: list[str] = []
        self.keeper = CacheKeeper(self.pages.cache, self.pages.pool, self.max_len // 3, lambda: self.now)
        self.shared = [self.tokens(20) for _ in range(3)]
        self.num_added = 0

    def tokens(self, num: int) -> list[int]:
        return [self.rng.randrange(1, VOCAB_SIZE) for _ in range(num)]

    def act(self) -> None:
        draw, rng = self.rng.random(), self.rng
        if draw < 0.25 and self.scheduler.num_waiting < 20:
            self.add_any()
        elif draw < 0.27 and self.requests:
            self.abort(rng.choice(list(self.requests)))
        elif draw < 0.29:
            self.switch(rng.choice(list(POLICIES)))
        elif draw < 0.31:
            self.pin()
        elif draw < 0.32 and self.pins:
            self.unpin(self.pins.pop(rng.randrange(len(self.pins))))
        elif draw < 0.325:
            self.keeper.flush()
        else:
            self.now += rng.choice([0.0, 1.0])
            self.step()

    def add_any(self) -> None:
        rng = self.rng
        prompt = self.prompt()
        self.num_added += 1
        self.add(
            f"{self.num_added}",
            prompt,
            rng.randrange(1, min(60, self.max_len - len(prompt)) + 1),
            stops=rng.random() < 0.5,
            deferrable=rng.random() < 0.2,
            cache_salt=rng.choice(["", "", "a", "b"]),
            priority=rng.randrange(-1, 3),
            tenant=rng.choice(["", "ann", "bob"]),
        )

    def prompt(self) -> list[int]:
        rng = self.rng
        prompt = rng.choice(self.shared)[: rng.randrange(21)] + self.tokens(8)
        return prompt[: rng.randrange(1, self.max_len)]

    def switch(self, name: str) -> None:
        policy = load_policy(REGISTRY, name, POLICIES[name])
        self.policies.add(policy)
        self.scheduler.policy = policy

    def pin(self) -> None:
        prefix = self.rng.choice(self.shared)[: self.rng.randrange(1, 21)]
        command = PinPrefix(prefix, self.rng.choice([3.0, 50.0]), self.rng.choice(["", "a"]))
        with contextlib.suppress(RequestError):  # too short for a page, or too much is pinned
            self.pins.append(self.keeper.pin(command).id)

    def unpin(self, pin_id: str) -> None:
        with contextlib.suppress(RequestError):  # its time is over, or it gave way
            self.keeper.unpin(pin_id)

    def plan(self) -> Any:
        self.keeper.tick()
        plan = super().plan()
        while not (plan.sequences or self.launched) and self.scheduler.has_work:
            assert self.keeper.give_up(), "nothing runs, and nothing can"
            plan = super().plan()
        return plan


REGISTRY = load_plugins().registry


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_random_operations_of_all_kinds_keep_invariants(page_size: int, overlap: bool) -> None:
    rng = random.Random(f"{page_size} {overlap}")
    num_retractions = 0
    for _ in range(NUM_OPERATIONS // 6 // AT_ONCE):
        driver = EverythingDriver(rng, page_size, overlap)
        for _ in range(AT_ONCE):
            driver.act()
        driver.finish()
        driver.check_outputs()
        assert not [policy.failure for policy in driver.policies if policy.failure]
        num_retractions += driver.scheduler.num_retractions
    assert num_retractions > 0
