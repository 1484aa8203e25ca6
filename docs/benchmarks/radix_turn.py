"""One turn of `radix.py`: the same operations on one radix cache. Prints microseconds of CPU time as JSON.

Runs in llmfw's environment or in one of SGLang's, so it imports either, and nothing else of this folder.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import sys
import time
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

NUM, LENGTH, SYSTEM, SHARED = 10_000, 512, 256, 448
ROUNDS = 60


def sequences(rng: random.Random) -> list[list[int]]:
    """Return token ids: 20 system prompts, each begun by 25 documents, each by about 20 sequences."""

    def draw(count: int) -> list[int]:
        return [rng.randrange(32000) for _ in range(count)]

    systems = [draw(SYSTEM) for _ in range(20)]
    documents = [systems[i % 20] + draw(SHARED - SYSTEM) for i in range(500)]
    return [rng.choice(documents) + draw(LENGTH - SHARED) for _ in range(NUM)]


def other_ends(rng: random.Random, found: list[list[int]], at: int) -> list[list[int]]:
    """Return the sequences with other tokens from a place on."""
    return [each[:at] + [rng.randrange(32000) for _ in range(LENGTH - at)] for each in found]


class Ours:
    """llmfw's cache, over a pool that forgets what is freed, as SGLang's allocator here does."""

    def __init__(self, page_size: int) -> None:
        from llmfw.core.schedule.cache.kv_pool import KVPool
        from llmfw.core.schedule.cache.radix_cache import RadixCache

        class Pool(KVPool):
            def free(self, pages: Any) -> None:
                pass

        self.page_size = page_size
        self.pool = Pool(1, page_size)
        self.cache = RadixCache(self.pool)
        self.insert, self.match = self.cache.insert, self.cache.match
        self.lock, self.unlock = self.cache.lock, self.cache.unlock

    def key(self, token_ids: list[int]) -> Any:
        return np.array(token_ids, np.int32)

    def places(self, index: int) -> Any:
        count = LENGTH // self.page_size
        return np.arange(index * count, (index + 1) * count, dtype=np.int32)

    def node(self, key: Any) -> Any:
        return self.match(key).node

    def evict(self, num_tokens: int) -> None:
        self.cache.evict(num_tokens // self.page_size)

    @property
    def num_tokens(self) -> int:
        return int(self.cache.num_pages * self.page_size)

    def rounds(self, num_waiting: int, keys: list[Any], ends: list[Any]) -> float:
        """Return microseconds of a round: some begin and end to wait, the cache changes, all are put in order.

        Four prompts go and four come, four are inserted as if they had been computed, and as much is evicted.
        """
        rng = random.Random(num_waiting)
        cached = np.zeros(num_waiting, np.int64)
        arrival = np.arange(num_waiting)
        subscriptions = [self.cache.subscribe(ends[i % NUM], "", i) for i in range(num_waiting)]
        cached[:] = [subscription.num_tokens for subscription in subscriptions]
        fresh = iter(range(NUM - 1, 0, -1))
        spent = []
        for r in range(ROUNDS):
            gone = rng.sample(range(num_waiting), 4)
            new = [(next(fresh), self.places(NUM + 4 * r + i)) for i in range(4)]
            prompts = [ends[i] for i in rng.sample(range(NUM), 4)]
            done = [subscriptions[i].token_ids for i in gone]
            begun = time.thread_time()
            for i, prompt, whole, (_, places) in zip(gone, prompts, done, new, strict=True):
                self.cache.unsubscribe(subscriptions[i])
                subscriptions[i] = self.cache.subscribe(prompt, "", i)
                cached[i] = subscriptions[i].num_tokens
                arrival[i] = num_waiting + 4 * r
                self.cache.insert(whole, places)
            self.cache.evict(4 * (LENGTH - SHARED) // self.page_size)
            for subscription in self.cache.take_moved():
                cached[subscription.index] = subscription.num_tokens
            np.lexsort((arrival, -cached))
            spent.append(time.thread_time() - begun)
        for subscription in subscriptions:
            self.cache.unsubscribe(subscription)
        return statistics.fmean(spent) * 1e6


class SGLang:
    """SGLang's cache without an engine, over an allocator that forgets what is freed."""

    def __init__(self, page_size: int) -> None:
        import torch
        from sglang.srt.mem_cache import base_prefix_cache as base
        from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

        torch.set_num_threads(1)

        class Allocator:
            device = "cpu"

            def free(self, *args: Any, **kwargs: Any) -> None:
                pass

            free_segment = free

        self.page_size = page_size
        self._torch, self._key = torch, RadixKey
        self.base = base
        self.cache = RadixCache.create_simulated(page_size=page_size)
        self.cache.token_to_kv_pool_allocator = Allocator()
        self.lock, self.unlock = self.cache.inc_lock_ref, self.cache.dec_lock_ref

    def key(self, token_ids: list[int]) -> Any:
        return array("q", token_ids)

    def places(self, index: int) -> Any:
        return self._torch.arange(index * LENGTH, (index + 1) * LENGTH)

    def insert(self, key: Any, places: Any) -> Any:
        return self.cache.insert(
            self.base.InsertParams(key=self._key(token_ids=key, extra_key=None), value=places)
        )

    def match(self, key: Any) -> Any:
        return self.cache.match_prefix(
            self.base.MatchPrefixParams(key=self._key(token_ids=key, extra_key=None))
        )

    def node(self, key: Any) -> Any:
        return self.match(key).last_device_node

    def evict(self, num_tokens: int) -> None:
        self.cache.evict(self.base.EvictParams(num_tokens=num_tokens))

    @property
    def num_tokens(self) -> int:
        return int(self.cache.total_size())

    def rounds(self, num_waiting: int, keys: list[Any], ends: list[Any]) -> float:
        """Return microseconds of a round: every waiting prompt is matched, and all are put in order.

        The policy's own functions. `match_kv_cache` needs a whole request, so the part of it that matches stands in.
        In service SGLang takes first come, first served above 128 waiting, so longer rounds do not happen.
        """
        import sglang.srt.managers.schedule_policy as policies

        def match(request: Any, tree: Any, token_ids: Any, **_: Any) -> Any:
            found = self.match(token_ids)
            request.prefix_len = request.num_matched_prefix_tokens = found.device_prefix_len
            request.last_node = found.last_device_node
            return found

        class Request:
            pass

        requests: list[Any] = []
        for i in range(num_waiting):
            request: Any = Request()
            request.rid, request.origin_input_ids, request.output_ids = str(i), ends[i % NUM], array("q")
            request.extra_key = request.cache_salt = request.last_node = None
            request.priority = 0
            request.prefix_indices = self._torch.empty(SHARED, dtype=self._torch.int64)
            request.prefix_len = request.num_matched_prefix_tokens = SHARED
            requests.append(request)
        policies.match_kv_cache = match
        kinds = policies.SchedulePolicy
        policy = kinds.__new__(kinds)
        policy.policy = policies.CacheAwarePolicy.LPM
        policy.tree_cache = self.cache
        policy.waiting_queue_radix_tree = type(self.cache).create_simulated(page_size=self.page_size)
        spent = []
        for r in range(5):
            random.Random(r).shuffle(requests)
            begun = time.thread_time()
            away = policy._compute_prefix_matches(requests, policy.policy)
            kinds._sort_by_longest_prefix(requests, away)
            spent.append(time.thread_time() - begun)
        return statistics.fmean(spent) * 1e6


def measure(cache: Any, waiting: list[int]) -> dict[str, float]:
    """Return microseconds of each operation, and of a round by requests waiting."""
    rng = random.Random(0)
    tokens = sequences(rng)
    keys = [cache.key(each) for each in tokens]
    ends = [cache.key(each) for each in other_ends(rng, tokens, SHARED)]
    halves = [cache.key(each) for each in other_ends(rng, tokens, (SHARED + LENGTH) // 2)]
    places = [cache.places(i) for i in range(NUM)]
    again = [cache.places(NUM + i) for i in range(NUM)]
    gc.collect()
    gc.freeze()
    found: dict[str, float] = {}

    def timed(name: str, operation: Callable[..., Any], *columns: list[Any]) -> None:
        begun = time.thread_time()
        for row in zip(*columns, strict=True):
            operation(*row)
        found[name] = (time.thread_time() - begun) / len(columns[0]) * 1e6

    timed("insert", cache.insert, keys, places)
    timed("insert again", cache.insert, keys, again)
    timed("match, all 512", cache.match, keys)
    timed("match, 448 of 512", cache.match, ends)
    for num in waiting:
        found[f"round, {num} waiting"] = cache.rounds(num, keys, ends)
    timed("match and split, 480 of 512", cache.match, halves)
    nodes = [cache.node(key) for key in keys]
    timed("lock", cache.lock, nodes)
    timed("unlock", cache.unlock, nodes)
    half = cache.num_tokens // 2
    timed("evict, 64 tokens of it", cache.evict, [half])
    found["evict, 64 tokens of it"] *= (LENGTH - SHARED) / half
    return found


if __name__ == "__main__":
    kind, page_size, waiting = sys.argv[1:]
    adapter = {"llmfw": Ours, "SGLang": SGLang}[kind](int(page_size))
    print(json.dumps(measure(adapter, [int(each) for each in waiting.split(",")])))
