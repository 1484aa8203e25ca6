"""The radix cache against a cache that is slow and plain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.radix_cache import RadixCache

Tokens = list[int]


def ids(tokens: Tokens) -> np.ndarray:
    return np.array(tokens, dtype=np.int32)


class PlainCache:
    """A dictionary from each whole-page prefix to its last page."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.pages: dict[tuple[int, ...], int] = {}

    def match(self, tokens: Tokens) -> list[int]:
        found = []
        for end in range(self.page_size, len(tokens) + 1, self.page_size):
            page = self.pages.get(tuple(tokens[:end]))
            if page is None:
                break
            found.append(page)
        return found

    def insert(self, tokens: Tokens, pages: list[int]) -> list[int]:
        ends = range(self.page_size, len(tokens) + 1, self.page_size)
        return [
            self.pages.setdefault(tuple(tokens[:end]), page) for end, page in zip(ends, pages, strict=True)
        ]


def insert(cache: RadixCache, pool: KVPool, tokens: Tokens) -> list[int]:
    """Insert whole pages of tokens as a sequence would that computed them all; return its pages, before."""
    size = len(tokens) // pool.page_size
    own = pool.allocate(size)
    _, theirs = cache.insert(ids(tokens[: size * pool.page_size]), own)
    pool.free(own[own != theirs])
    return own.tolist()


few_tokens = st.lists(st.integers(0, 2), max_size=24)


@given(page_size=st.sampled_from([1, 2, 4]), prompts=st.lists(few_tokens, max_size=12))
def test_match_and_insert_equal_a_prefix_dictionary(page_size: int, prompts: list[Tokens]) -> None:
    pool = KVPool(400, page_size)
    cache, plain = RadixCache(pool), PlainCache(page_size)
    for prompt in prompts:
        assert cache.match_length(ids(prompt)) == len(plain.match(prompt)) * page_size
        assert cache.match(ids(prompt)).pages.tolist() == plain.match(prompt)
        whole = prompt[: len(prompt) - len(prompt) % page_size]
        plain.insert(whole, insert(cache, pool, whole))
        assert cache.match(ids(prompt)).pages.tolist() == plain.match(prompt)
    assert cache.num_pages == len(plain.pages) == pool.num_pages - pool.num_free


@given(prompts=st.lists(few_tokens, min_size=1, max_size=12), count=st.integers(0, 60), data=st.data())
def test_eviction_frees_enough_and_no_locked_page(
    prompts: list[Tokens], count: int, data: st.DataObject
) -> None:
    pool = KVPool(400, 1)
    cache = RadixCache(pool)
    for prompt in prompts:
        insert(cache, pool, prompt)
    locked = data.draw(st.sampled_from(prompts))
    node, pages = cache.match(ids(locked))
    cache.lock(node)
    evictable, free = cache.num_evictable_pages, pool.num_free
    freed = cache.evict(count)
    assert freed == min(count, evictable) == pool.num_free - free
    assert cache.match(ids(locked)).pages.tolist() == pages.tolist()
    cache.unlock(node)
    cache.evict(400)
    assert cache.num_pages == 0
    assert pool.num_free == pool.num_pages


def test_the_least_recently_used_is_evicted_first() -> None:
    pool = KVPool(30, 1)
    cache = RadixCache(pool)
    for first in (1, 2, 3):
        insert(cache, pool, [first] * 10)
    cache.match(ids([1] * 10))
    cache.evict(10)
    assert [cache.match_length(ids([first] * 10)) for first in (1, 2, 3)] == [10, 0, 10]


def test_eviction_shortens_from_the_end() -> None:
    pool = KVPool(30, 1)
    cache = RadixCache(pool)
    insert(cache, pool, list(range(10)))
    cache.evict(3)
    assert cache.match_length(ids(list(range(10)))) == 7


def test_a_split_keeps_both_halves_locked() -> None:
    pool = KVPool(30, 1)
    cache = RadixCache(pool)
    insert(cache, pool, [1, 2, 3, 4])
    node, _ = cache.match(ids([1, 2, 3, 4]))
    cache.lock(node)
    insert(cache, pool, [1, 2, 9])
    assert cache.num_evictable_pages == 1
    cache.unlock(node)
    assert cache.num_evictable_pages == 5


def test_unlocking_too_often_is_an_assertion_error() -> None:
    pool = KVPool(4, 1)
    cache = RadixCache(pool)
    insert(cache, pool, [1, 2])
    node, _ = cache.match(ids([1, 2]))
    with pytest.raises(AssertionError, match="more often"):
        cache.unlock(node)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), few_tokens), max_size=60))
def test_page_counts_match_the_tree(operations: list[tuple[int, Tokens]]) -> None:
    pool = KVPool(64, 1)
    cache = RadixCache(pool)
    locked = []
    for kind, tokens in operations:
        if kind == 0 and (pool.num_free >= len(tokens) or cache.evict(len(tokens)) >= len(tokens)):
            insert(cache, pool, tokens)
        elif kind == 1:
            locked.append(cache.match(ids(tokens)).node)
            cache.lock(locked[-1])
        elif kind == 2 and locked:
            cache.unlock(locked.pop())
        elif kind == 3:
            cache.evict(len(tokens))
        nodes = cache.nodes()
        assert cache.num_pages == sum(len(node.pages) for node in nodes) == pool.num_pages - pool.num_free
        assert cache.num_evictable_pages == sum(len(node.pages) for node in nodes if not node.locks)
