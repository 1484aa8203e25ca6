"""Watches of a radix cache against the plain form, which asks the cache about every one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from llmfw.core.schedule.cache.eviction import EVICTIONS
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.prefix_cache import NoPrefixCache, PrefixCache, TokenIds, Watch
from llmfw.core.schedule.cache.radix_cache import RadixCache

SALTS = ("", "a", "b")


def ids(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, dtype=np.int32)


def fill(cache: RadixCache, pool: KVPool, tokens: list[int], salt: str = "") -> None:
    """Insert whole pages of tokens, making room first; what is there already is given back."""
    count = len(tokens) // pool.page_size
    missing = count - pool.num_free
    if missing > 0 and cache.evict(missing) < missing:
        return
    own = pool.allocate(count)
    theirs = cache.insert(ids(tokens[: count * pool.page_size]), own, salt).pages
    pool.free(own[own != theirs])


class PlainForm(NoPrefixCache):
    """The watches of `PrefixCache` itself, over another cache's tree."""

    def __init__(self, cache: RadixCache, page_size: int) -> None:
        super().__init__()
        self._cache = cache
        self._page_size = page_size

    def match_length(self, token_ids: TokenIds, salt: str = "") -> int:
        return self._cache.match_length(token_ids, salt)

    def whole_pages_awaited(self, watch: Watch, rank: int) -> int:
        return self.num_awaited(watch, rank) // self._page_size * self._page_size


class Pair:
    """A radix cache and the plain form, watched alike, and random changes."""

    def __init__(self, seed: int, page_size: int, eviction: str = "lru") -> None:
        self.rng = random.Random(seed)
        self.pool = KVPool(self.rng.choice([20, 60]), page_size)
        self.cache = RadixCache(self.pool, EVICTIONS[eviction])
        self.plain = PlainForm(self.cache, page_size)
        self.watched: dict[int, tuple[Watch, Watch]] = {}
        self.locked: list = []
        self.kept: list[Watch] = []
        self.trunks = [[self.rng.randrange(2) for _ in range(8 * page_size)] for _ in range(3)]

    def prompt(self) -> tuple[list[int], str]:
        trunk = self.rng.choice(self.trunks)
        tokens = trunk[: self.rng.randrange(len(trunk) + 1)]
        tokens = tokens + [self.rng.randrange(2) for _ in range(self.rng.randrange(5 * self.pool.page_size))]
        return tokens, self.rng.choice(SALTS)

    def change(self, index: int) -> None:
        """Do one random thing to the cache, or to who watches it."""
        tokens, salt = self.prompt()
        draw = self.rng.randrange(9)
        if draw < 2:
            fill(self.cache, self.pool, tokens, salt)
        elif draw == 2:
            self.cache.evict(self.rng.randrange(1, 8))
        elif draw == 3:
            self.locked.append(self.cache.match(ids(tokens), salt).node)
            self.cache.lock(self.locked[-1])
        elif draw == 4 and self.locked:
            self.cache.unlock(self.locked.pop(self.rng.randrange(len(self.locked))))
        elif draw == 5 and self.watched:
            mine, plain = self.watched.pop(self.rng.choice(list(self.watched)))
            self.cache.unwatch(mine)
            self.plain.unwatch(plain)
        elif draw == 6 and self.watched:
            mine, plain = self.rng.choice(list(self.watched.values()))
            rank = self.rng.choice([1, 2])
            self.cache.lead(mine, rank)
            self.plain.lead(plain, rank)
        elif draw == 7:
            if self.kept and self.rng.random() < 0.6:
                self.cache.unwatch(self.kept.pop(self.rng.randrange(len(self.kept))))
            else:
                self.kept.append(self.cache.keep(ids(tokens), salt))
        else:
            self.watched[index] = tuple(c.watch(ids(tokens), salt, index) for c in (self.cache, self.plain))

    def check(self) -> None:
        """Assert that both forms tell the same."""
        moved, plainly = self.cache.take_moved(), self.plain.take_moved()
        assert sorted(watch.index for watch in moved) == sorted(watch.index for watch in plainly)
        for mine, plain in self.watched.values():
            assert mine.num_tokens == plain.num_tokens
            for rank in (1, 2):
                assert self.cache.num_awaited(mine, rank) == self.plain.whole_pages_awaited(plain, rank)
        for watch in self.kept:
            assert watch.num_tokens == self.cache.match_length(watch.token_ids, watch.salt)

    def end(self) -> None:
        """Let everything go and assert that nothing is left."""
        for node in self.locked:
            self.cache.unlock(node)
        for watch in [*self.kept, *(mine for mine, _ in self.watched.values())]:
            self.cache.unwatch(watch)
        assert self.cache.num_evictable_pages == self.cache.num_pages
        self.cache.evict(self.pool.num_pages)
        assert self.pool.num_free == self.pool.num_pages
        assert list(self.cache.roots) == [""]
        assert self.cache.roots[""].groups is None


@pytest.mark.parametrize("eviction", EVICTIONS)
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("seed", range(6))
def test_watches_tell_what_asking_the_cache_about_each_would(
    seed: int, page_size: int, eviction: str
) -> None:
    pair = Pair(seed, page_size, eviction)
    for i in range(400):
        pair.change(i)
        if pair.rng.random() < 0.7:
            pair.check()
    pair.check()
    pair.end()


def watch_all(cache: PrefixCache, prompt: list[int], count: int) -> list[Watch]:
    return [cache.watch(ids([*prompt, 100 + i]), "", i) for i in range(count)]


def test_cutting_a_leaf_again_and_again_touches_its_watches_once() -> None:
    pool = KVPool(100, 1)
    cache = RadixCache(pool)
    fill(cache, pool, list(range(50)))
    watches = watch_all(cache, list(range(50)), 20)
    cache.evict(1)
    group = watches[0].group
    assert group is not None
    assert list(group.members) == watches
    for _ in range(30):
        cache.evict(1)
    assert all(watch.group is group and watch.num_tokens == 50 for watch in watches)
    assert cache.take_moved() == watches
    assert {watch.num_tokens for watch in watches} == {19}
    assert cache.take_moved() == []


def test_an_insert_concerns_only_those_that_go_on_with_its_first_page() -> None:
    pool = KVPool(100, 1)
    cache = RadixCache(pool)
    fill(cache, pool, [1, 2, 3])
    watches = watch_all(cache, [1, 2, 3], 10)
    others = [watch.group for watch in watches if watch.index != 4]
    fill(cache, pool, [1, 2, 3, 104])
    assert [watch.index for watch in cache.take_moved()] == [4]
    assert [watch.group for watch in watches if watch.index != 4] == others


def test_what_comes_and_goes_between_two_calls_has_not_moved() -> None:
    pool = KVPool(10, 1)
    cache = RadixCache(pool)
    cache.watch(ids([1, 2, 3]), "", 0)
    fill(cache, pool, [1, 2])
    cache.evict(2)
    assert cache.take_moved() == []


def test_watching_is_no_use() -> None:
    pool = KVPool(20, 1)
    cache = RadixCache(pool)
    for first in (1, 2):
        fill(cache, pool, [first] * 10)
    cache.watch(ids([1] * 10), "", 0)
    cache.evict(10)
    assert cache.match_length(ids([2] * 10)) == 10


def test_a_kept_prefix_stays_and_grows_as_it_is_computed() -> None:
    pool = KVPool(20, 1)
    cache = RadixCache(pool)
    fill(cache, pool, [1, 2, 3])
    kept = cache.keep(ids([1, 2, 3, 4, 5]), "")
    assert (kept.num_tokens, cache.evict(20)) == (3, 0)
    fill(cache, pool, [1, 2, 3, 4, 9])
    assert (kept.num_tokens, cache.evict(20)) == (4, 1)
    cache.unwatch(kept)
    assert cache.evict(20) == 4
