"""The rules of eviction, and the tree that they are applied to."""

from __future__ import annotations

import random

import pytest

from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.prefix_cache import CacheNode
from llmfw.core.schedule.cache.radix_cache import LONG, RadixCache

from .rules import RULES, make_rule
from .test_subscriptions import fill, ids


def cache_of(eviction: str, num_pages: int = 100) -> tuple[RadixCache, KVPool]:
    pool = KVPool(num_pages, 1)
    return RadixCache(pool, make_rule(eviction)), pool


def survivors(cache: RadixCache, *firsts: int) -> list[int]:
    """Return of which first tokens something is cached."""
    return [first for first in firsts if cache.match_length(ids([first]))]


def find(cache: RadixCache, tokens: list[int]) -> None:
    """Match as a request does that begins."""
    node, pages = cache.match(ids(tokens))
    cache.count(node, len(pages), len(tokens))


def use(cache: RadixCache, first: int, times: int) -> None:
    for _ in range(times):
        find(cache, [first] * 5)


def test_lru_keeps_recent_and_lfu_frequent_prefixes() -> None:
    for eviction, kept in (("lru", 2), ("lfu", 1)):
        cache, pool = cache_of(eviction)
        for first in (1, 2):
            fill(cache, pool, [first] * 5)
        use(cache, 1, 3)
        use(cache, 2, 1)
        cache.evict(5)
        assert survivors(cache, 1, 2) == [kept]


def test_size_evicts_the_larger_of_equals() -> None:
    cache, pool = cache_of("size")
    for first, count in ((1, 5), (2, 50)):
        fill(cache, pool, [first] * count)
        find(cache, [first] * count)
    cache.evict(50)
    assert survivors(cache, 1, 2) == [1]


def test_size_forgets_old_popularity_and_lfu_does_not() -> None:
    for eviction, old in (("lfu", [1]), ("size", [])):
        cache, pool = cache_of(eviction, 20)
        fill(cache, pool, [1] * 5)
        use(cache, 1, 6)
        for first in range(2, 60):
            fill(cache, pool, [first] * 5)
            use(cache, first, 1)
        assert survivors(cache, 1) == old


def change(cache: RadixCache, pool: KVPool, rng: random.Random) -> None:
    """Insert, match or evict something."""
    tokens = [rng.randrange(3) for _ in range(rng.randrange(1, 12))]
    draw = rng.randrange(3)
    if draw == 0:
        fill(cache, pool, tokens)
    elif draw == 1:
        find(cache, tokens)
    else:
        cache.evict(rng.randrange(3))


@pytest.mark.parametrize("eviction", RULES)
def test_a_leaf_s_rank_never_decreases(eviction: str) -> None:
    rng = random.Random(1)
    cache, pool = cache_of(eviction, 60)
    rule = make_rule(eviction).rank
    before: dict[CacheNode, float] = {}
    for _ in range(2000):
        change(cache, pool, rng)
        leaves = {node: rule(node) for node in cache.nodes() if not node.children}
        assert all(number >= before.get(node, number) for node, number in leaves.items())
        before = leaves


@pytest.mark.parametrize("eviction", RULES)
def test_the_smallest_rank_is_evicted_first(eviction: str) -> None:
    rng = random.Random(2)
    cache, pool = cache_of(eviction, 200)
    rule = make_rule(eviction).rank
    for _ in range(1000):
        change(cache, pool, rng)
        leaves = [node for node in cache.nodes() if not node.children]
        smallest = min(map(rule, leaves), default=0)
        sizes = {node: len(node.pages) for node in leaves if rule(node) == smallest}
        cache.evict(1)
        assert not sizes or any(node.parent is None or len(node.pages) < n for node, n in sizes.items())


def test_trimming_a_leaf_copies_only_its_end() -> None:
    cache, pool = cache_of("lru", 10 * LONG)
    tokens = list(range(10 * LONG))
    fill(cache, pool, tokens)
    for i in range(2 * LONG):
        assert cache.evict(1) == 1
        assert cache.match_length(ids(tokens)) == 10 * LONG - i - 1
    assert len(cache.nodes()) <= 4
    cache.evict(10 * LONG)
    assert pool.num_free == 10 * LONG


def test_relisted_pages_are_still_evicted_in_order() -> None:
    cache, pool = cache_of("lru", 1000)
    for first in range(100):
        fill(cache, pool, [first] * 10)
    for first in reversed(range(100)):
        cache.match(ids([first] * 10))
    cache.evict(300)
    assert survivors(cache, *range(100)) == list(range(70))


def test_prefixes_of_different_salts_are_separate() -> None:
    cache, pool = cache_of("lru")
    for salt in ("", "a", "b"):
        assert cache.match_length(ids([1, 2, 3]), salt) == 0
        assert len(cache.match(ids([1, 2, 3]), salt).pages) == 0
        fill(cache, pool, [1, 2, 3], salt)
    assert cache.num_pages == 9
    found = [cache.match(ids([1, 2, 3]), salt).pages.tolist() for salt in ("", "a", "b")]
    assert len({page for pages in found for page in pages}) == 9
    cache.evict(6)
    assert list(cache.roots) == ["", "b"]
    cache.evict(3)
    assert list(cache.roots) == [""]


def test_looking_up_a_salt_stores_nothing() -> None:
    cache, _ = cache_of("lru")
    cache.match(ids([1]), "a")
    cache.match_length(ids([1]), "b")
    cache.unsubscribe(cache.subscribe(ids([1]), "c", 0))
    cache.unsubscribe(cache.keep(ids([1]), "d"))
    assert list(cache.roots) == [""]
