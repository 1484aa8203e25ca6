"""Leaves leave the cache when the time comes that the rule sets, even if there is room."""

from __future__ import annotations

import random

import pytest

from llmfw.core.schedule.cache.expiry import MIN_COMPACTED
from llmfw.core.schedule.cache.isolated_rule import IsolatedRule
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.radix_cache import MAX_EXPIRED, RadixCache
from llmfw.plugins.eviction.ttl import TTL

from .test_subscriptions import fill, ids


def cache_of(num_pages: int = 100, **options: object) -> tuple[RadixCache, KVPool]:
    pool = KVPool(num_pages, 1)
    return RadixCache(pool, IsolatedRule(TTL(TTL.Options(seconds=10, **options)))), pool  # type: ignore[arg-type]


def at(cache: RadixCache, now: float) -> RadixCache:
    """Let the clock go to `now`."""
    cache.now = now
    cache.expire()
    return cache


def test_unused_prefixes_expire_and_used_ones_stay() -> None:
    cache, pool = cache_of()
    fill(cache, pool, [1] * 5)
    fill(cache, pool, [2] * 5)
    at(cache, 8).match(ids([1] * 5))
    assert at(cache, 9.9).num_pages == 10
    assert at(cache, 10).num_pages == 5
    assert cache.match_length(ids([1] * 5)) == 5
    assert cache.next_expiry == 18
    assert (at(cache, 18).num_pages, pool.num_free, cache.num_evicted) == (0, 100, 10)


def test_time_since_creation_ignores_uses() -> None:
    cache, pool = cache_of(since="created")
    fill(cache, pool, [1] * 5)
    at(cache, 9).match(ids([1] * 5))
    assert at(cache, 10).num_pages == 0


def test_parents_expire_after_their_last_child() -> None:
    cache, pool = cache_of()
    fill(cache, pool, [1, 1])
    at(cache, 5)
    fill(cache, pool, [1, 1, 2])
    fill(cache, pool, [1, 1, 3])
    assert at(cache, 14).num_pages == 4
    assert at(cache, 15).num_pages == 0
    assert pool.num_free == 100


def test_locked_prefixes_expire_when_they_are_released() -> None:
    cache, pool = cache_of()
    fill(cache, pool, [1] * 5)
    node = cache.match(ids([1] * 5)).node
    cache.lock(node)
    assert at(cache, 100).num_pages == 5
    cache.unlock(node)
    assert cache.next_expiry <= 100
    assert at(cache, 100).num_pages == 0


def test_a_call_removes_a_limited_number() -> None:
    cache, pool = cache_of(2 * MAX_EXPIRED)
    for first in range(2 * MAX_EXPIRED):
        fill(cache, pool, [first])
    assert at(cache, 10).num_pages == MAX_EXPIRED
    assert at(cache, 10).num_pages == 0


def test_salts_are_forgotten_with_their_prefixes() -> None:
    cache, pool = cache_of()
    fill(cache, pool, [1], "a")
    assert list(cache.roots) == ["", "a"]
    assert list(at(cache, 10).roots) == [""]


@pytest.mark.parametrize("expires", [True, False])
def test_entries_of_gone_leaves_do_not_pile_up(expires: bool) -> None:
    cache, pool = cache_of()
    for first in range(5 * MIN_COMPACTED):
        fill(cache, pool, [first])
        if expires:
            at(cache, 20.0 * first + 10)
        else:
            cache.evict(1)
    assert len(cache._leaves._leaves) < 20
    expiry = cache._leaves.expiry
    assert expiry is not None
    assert len(expiry._heap) <= MIN_COMPACTED


@pytest.mark.parametrize("seed", range(20))
def test_random_changes_expire_exactly_the_due(seed: int) -> None:
    rng = random.Random(seed)
    cache, pool = cache_of(60)
    locked = []
    for _ in range(2000):
        now = at(cache, cache.now + rng.choice([0, 0, 0.5, 3])).now
        leaves = [node for node in cache.nodes() if node.is_evictable]
        assert all(node.used_at + 10 > now for node in leaves)
        tokens = [rng.randrange(3) for _ in range(rng.randrange(1, 12))]
        draw = rng.randrange(5)
        if draw == 0:
            fill(cache, pool, tokens)
        elif draw == 1:
            cache.evict(rng.randrange(3))
        elif draw == 2:
            locked.append(cache.match(ids(tokens)).node)
            cache.lock(locked[-1])
        elif locked:
            cache.unlock(locked.pop(rng.randrange(len(locked))))
        assert pool.num_free + cache.num_pages == 60
    while locked:
        cache.unlock(locked.pop())
    assert at(cache, cache.now + 10).num_pages == 0
