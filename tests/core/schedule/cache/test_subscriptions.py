"""Subscriptions of a radix cache against the plain form, which asks the cache about every one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.prefix_cache import NoPrefixCache, PrefixCache, Subscription, TokenIds
from llmfw.core.schedule.cache.radix_cache import RadixCache

from .rules import RULES, make_rule

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
    """The subscriptions of `PrefixCache` itself, over another cache's tree."""

    def __init__(self, cache: RadixCache, page_size: int) -> None:
        super().__init__()
        self._cache = cache
        self._page_size = page_size

    def match_length(self, token_ids: TokenIds, salt: str = "") -> int:
        return self._cache.match_length(token_ids, salt)

    def whole_pages_awaited(self, subscription: Subscription, rank: int) -> int:
        found = PrefixCache.num_awaited(self, subscription, rank)
        return found // self._page_size * self._page_size


class Pair:
    """A radix cache and the plain form, subscribed alike, and random changes."""

    def __init__(self, seed: int, page_size: int, eviction: str = "lru") -> None:
        self.rng = random.Random(seed)
        self.pool = KVPool(self.rng.choice([20, 60]), page_size)
        self.cache = RadixCache(self.pool, make_rule(eviction))
        self.plain = PlainForm(self.cache, page_size)
        self.subscribed: dict[int, tuple[Subscription, Subscription]] = {}
        self.locked: list = []
        self.kept: list[Subscription] = []
        self.trunks = [[self.rng.randrange(2) for _ in range(8 * page_size)] for _ in range(3)]

    def prompt(self) -> tuple[list[int], str]:
        trunk = self.rng.choice(self.trunks)
        tokens = trunk[: self.rng.randrange(len(trunk) + 1)]
        tokens = tokens + [self.rng.randrange(2) for _ in range(self.rng.randrange(5 * self.pool.page_size))]
        return tokens, self.rng.choice(SALTS)

    def change(self, index: int) -> None:
        """Do one random thing to the cache, or to who subscriptions it."""
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
        elif draw == 5 and self.subscribed:
            mine, plain = self.subscribed.pop(self.rng.choice(list(self.subscribed)))
            self.cache.unsubscribe(mine)
            self.plain.unsubscribe(plain)
        elif draw == 6 and self.subscribed:
            mine, plain = self.rng.choice(list(self.subscribed.values()))
            rank = self.rng.choice([1, 2])
            self.cache.lead(mine, rank)
            self.plain.lead(plain, rank)
        elif draw == 7:
            if self.kept and self.rng.random() < 0.6:
                self.cache.unsubscribe(self.kept.pop(self.rng.randrange(len(self.kept))))
            else:
                self.kept.append(self.cache.keep(ids(tokens), salt))
        else:
            self.subscribed[index] = tuple(
                c.subscribe(ids(tokens), salt, index) for c in (self.cache, self.plain)
            )

    def check(self) -> None:
        """Assert that both forms tell the same."""
        moved, plainly = self.cache.take_moved(), self.plain.take_moved()
        assert sorted(subscription.index for subscription in moved) == sorted(
            subscription.index for subscription in plainly
        )
        for mine, plain in self.subscribed.values():
            assert mine.num_tokens == plain.num_tokens
            for rank in (1, 2):
                assert self.cache.num_awaited(mine, rank) == self.plain.whole_pages_awaited(plain, rank)
        for subscription in self.kept:
            assert subscription.num_tokens == self.cache.match_length(
                subscription.token_ids, subscription.salt
            )

    def end(self) -> None:
        """Let everything go and assert that nothing is left."""
        for node in self.locked:
            self.cache.unlock(node)
        for subscription in [*self.kept, *(mine for mine, _ in self.subscribed.values())]:
            self.cache.unsubscribe(subscription)
        assert self.cache.num_evictable_pages == self.cache.num_pages
        self.cache.evict(self.pool.num_pages)
        assert self.pool.num_free == self.pool.num_pages
        assert list(self.cache.roots) == [""]
        assert self.cache.roots[""].groups is None


@pytest.mark.long
@pytest.mark.parametrize("eviction", RULES)
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("seed", range(6))
def test_subscriptions_equal_matching_each_again(seed: int, page_size: int, eviction: str) -> None:
    pair = Pair(seed, page_size, eviction)
    for i in range(400):
        pair.change(i)
        if pair.rng.random() < 0.7:
            pair.check()
    pair.check()
    pair.end()


def subscribe_all(cache: PrefixCache, prompt: list[int], count: int) -> list[Subscription]:
    return [cache.subscribe(ids([*prompt, 100 + i]), "", i) for i in range(count)]


def test_repeated_trimming_touches_subscriptions_once() -> None:
    pool = KVPool(100, 1)
    cache = RadixCache(pool)
    fill(cache, pool, list(range(50)))
    subscriptions = subscribe_all(cache, list(range(50)), 20)
    cache.evict(1)
    group = subscriptions[0].group
    assert group is not None
    assert list(group.members) == subscriptions
    for _ in range(30):
        cache.evict(1)
    assert all(
        subscription.group is group and subscription.num_tokens == 50 for subscription in subscriptions
    )
    assert cache.take_moved() == subscriptions
    assert {subscription.num_tokens for subscription in subscriptions} == {19}
    assert cache.take_moved() == []


def test_an_insert_moves_only_matching_subscriptions() -> None:
    pool = KVPool(100, 1)
    cache = RadixCache(pool)
    fill(cache, pool, [1, 2, 3])
    subscriptions = subscribe_all(cache, [1, 2, 3], 10)
    others = [subscription.group for subscription in subscriptions if subscription.index != 4]
    fill(cache, pool, [1, 2, 3, 104])
    assert [subscription.index for subscription in cache.take_moved()] == [4]
    assert [subscription.group for subscription in subscriptions if subscription.index != 4] == others


def test_temporary_changes_do_not_move_subscriptions() -> None:
    pool = KVPool(10, 1)
    cache = RadixCache(pool)
    cache.subscribe(ids([1, 2, 3]), "", 0)
    fill(cache, pool, [1, 2])
    cache.evict(2)
    assert cache.take_moved() == []


def test_subscribing_does_not_count_as_use() -> None:
    pool = KVPool(20, 1)
    cache = RadixCache(pool)
    for first in (1, 2):
        fill(cache, pool, [first] * 10)
    cache.subscribe(ids([1] * 10), "", 0)
    cache.evict(10)
    assert cache.match_length(ids([2] * 10)) == 10


def test_a_kept_prefix_grows_and_is_not_evicted() -> None:
    pool = KVPool(20, 1)
    cache = RadixCache(pool)
    fill(cache, pool, [1, 2, 3])
    kept = cache.keep(ids([1, 2, 3, 4, 5]), "")
    assert (kept.num_tokens, cache.evict(20)) == (3, 0)
    fill(cache, pool, [1, 2, 3, 4, 9])
    assert (kept.num_tokens, cache.evict(20)) == (4, 1)
    cache.unsubscribe(kept)
    assert cache.evict(20) == 4
