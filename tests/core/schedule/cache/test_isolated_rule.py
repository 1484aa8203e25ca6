"""Faulty eviction rules: the cache replaces them with lru, and evicts on."""

from __future__ import annotations

import itertools
import logging
import math
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from llmfw.core import CacheLeaf, EvictionRule
from llmfw.core.schedule.cache.isolated_rule import IsolatedRule
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.radix_cache import RadixCache

from .test_subscriptions import fill, ids


class Given(EvictionRule):
    """Ranks by a function."""

    def __init__(self, rank: Callable[[CacheLeaf], Any]) -> None:
        super().__init__(self.Options())
        self.function = rank

    def rank(self, leaf: CacheLeaf) -> float:
        return self.function(leaf)  # type: ignore[no-any-return]


class Timed(Given):
    """Ranks by last use, and sets times of expiry by a function."""

    def rank(self, leaf: CacheLeaf) -> float:
        return leaf.last_use

    def expires_at(self, leaf: CacheLeaf) -> float | None:
        return self.function(leaf)  # type: ignore[no-any-return]


def broken(leaf: CacheLeaf) -> float:
    raise ZeroDivisionError("no hits")


def filled(rule: EvictionRule, num_pages: int = 100) -> tuple[RadixCache, KVPool, IsolatedRule]:
    """Return a cache with ten prefixes of ten tokens, used in the order 0, 1, …."""
    pool = KVPool(num_pages, 1)
    isolated = IsolatedRule(rule, "the eviction rule 'bad' of plugin 'worse'")
    cache = RadixCache(pool, isolated)
    for first in range(10):
        fill(cache, pool, [first] * 10)
    return cache, pool, isolated


def survivors(cache: RadixCache) -> list[int]:
    return [first for first in range(10) if cache.match_length(ids([first]))]


FAULTS: dict[str, tuple[Callable[[CacheLeaf], Any], str]] = {
    "raises": (broken, "ZeroDivisionError: no hits"),
    "none": (lambda leaf: None, r"rank\(\) returned None, not a number"),
    "text": (lambda leaf: "1", r"rank\(\) returned a str, not a number"),
    "nan": (lambda leaf: math.nan, r"rank\(\) returned nan, not a finite number"),
    "infinity": (lambda leaf: math.inf, r"rank\(\) returned inf, not a finite number"),
    "array": (lambda leaf: np.ones(2), r"rank\(\) returned a ndarray, not a number"),
    "stops": (lambda leaf: next(iter(())), "StopIteration"),
}


@pytest.mark.parametrize(("rank", "says"), FAULTS.values(), ids=FAULTS)
def test_an_invalid_rank_makes_room_for_lru(
    rank: Callable[[CacheLeaf], Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache, pool, rule = filled(Given(rank))
    cache.evict(30)
    assert (survivors(cache), pool.num_free) == ([3, 4, 5, 6, 7, 8, 9], 30)
    assert rule.failure is not None
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert caplog.text.count("the eviction rule 'bad' of plugin 'worse' failed") == 1
    assert caplog.records[0].getMessage().endswith("evicted first from now on")
    assert re.search(says, rule.failure)


def test_a_decreasing_rank_makes_room_for_lru() -> None:
    cache, _, rule = filled(Given(lambda leaf: -leaf.hits))
    for first in (0, 1, 2):
        node, pages = cache.match(ids([first] * 10))
        cache.count(node, len(pages), 10)
    cache.evict(90)
    assert survivors(cache) == [2]
    assert rule.failure is not None
    assert "decreased from 0 to -1" in rule.failure


def test_a_late_fault_orders_all_leaves_by_use() -> None:
    """Until then the rule evicts the newest first."""
    calls = itertools.count()
    cache, _, rule = filled(Given(lambda leaf: -leaf.created_at if next(calls) < 12 else None))
    cache.evict(90)
    assert rule.failure is not None
    assert survivors(cache) in ([9], [8])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("trend", [1, 0, -1])
def test_ranks_that_always_change_still_evict(seed: int, trend: int) -> None:
    rng = random.Random(seed)
    calls = itertools.count()
    cache, pool, rule = filled(Given(lambda leaf: trend * next(calls) + (rng.random() if not trend else 0)))
    assert cache.evict(100) == 100
    assert pool.num_free == 100
    if trend:
        assert (rule.failure is None) == (trend > 0)


def test_numpy_s_numbers_are_ranks() -> None:
    for kind in (np.float64, np.float32, np.int64, np.int8, bool):
        cache, _, rule = filled(Given(lambda leaf, kind=kind: kind(1)))  # type: ignore[misc]
        assert (cache.evict(100), rule.failure) == (100, None)


def test_large_integers_are_compared_exactly() -> None:
    cache, _, rule = filled(Given(lambda leaf: 2**80 - (0 if leaf.last_use % 2 else 1)))
    cache.evict(10)
    assert rule.failure is None


@pytest.mark.parametrize("at", ["soon", math.nan, True, [1.0]])
def test_an_invalid_time_stops_expiry(at: object) -> None:
    cache, _, rule = filled(Timed(lambda leaf: at))
    cache.now = 1e9
    cache.expire()
    assert len(survivors(cache)) == 10
    assert rule.failure is not None
    assert "expires_at() returned" in rule.failure
    assert cache.evict(100) == 100


def test_none_and_infinity_never_expire() -> None:
    for at in (None, math.inf):
        cache, _, rule = filled(Timed(lambda leaf, at=at: at))  # type: ignore[misc]
        assert (cache.next_expiry, rule.failure) == (math.inf, None)


def test_the_log_says_that_expiry_ends(caplog: pytest.LogCaptureFixture) -> None:
    class Lasting(Given):
        def expires_at(self, leaf: CacheLeaf) -> float | None:
            return leaf.used_at + 60

    cache, _, _ = filled(Lasting(broken))
    assert (cache.evict(100), cache.next_expiry) == (100, math.inf)
    assert caplog.records[0].getMessage().endswith("and none of them expires from now on")
