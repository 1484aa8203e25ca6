"""Conformance tests of the `EvictionRule` interface."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from llmfw.core.interfaces.eviction_rule import CacheLeaf, EvictionRule
from llmfw.core.schedule.cache.isolated_rule import IsolatedRule, check_rank, check_time
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.radix_cache import RadixCache

NOW = 1e6
"""Time of the newest leaves, in seconds. A time of expiry that is meant as a duration is far below it."""

DELAY_S = 4096.0
ROUNDING_S = 1e-3
"""Rounding error of sums of times; less than the time between two steps."""

MAX_RANK_S = 5e-6
"""Processor time that a rank may take, on average: the engine computes nothing else meanwhile."""

MAX_KEPT = 2_000
"""Blocks of memory that a rule may keep of 10,000 leaves; a rule that keeps each has more than 10,000."""


@dataclass(frozen=True)
class LeafData:
    """Attributes of a leaf; see `CacheLeaf`."""

    last_use: int = 1
    hits: int = 0
    floor: float = 0.0
    created_at: float = NOW
    used_at: float = NOW
    num_pages: int = 1
    page_size: int = 16
    salt: str = ""

    def used(self) -> LeafData:
        """Return the leaf after a use, some time later and after other leaves were evicted."""
        return replace(
            self,
            last_use=self.last_use + 7,
            used_at=self.used_at + 3.0,
            floor=self.floor + abs(self.floor) / 8,
        )

    def delayed(self, seconds: float) -> LeafData:
        """Return the leaf with all its times moved to later."""
        return replace(self, created_at=self.created_at + seconds, used_at=self.used_at + seconds)


class ExampleLeaf(CacheLeaf):
    """A leaf for tests. Writing to an attribute fails.

    Args:
        data: attributes of the leaf.
    """

    def __init__(self, data: LeafData) -> None:
        for name in ("last_use", "hits", "floor", "created_at", "used_at"):
            object.__setattr__(self, name, getattr(data, name))
        object.__setattr__(self, "data", data)

    data: LeafData

    def __setattr__(self, name: str, value: object) -> None:
        raise AssertionError(f"the rule sets {name!r} of a leaf, which it must not change")

    @property
    def num_pages(self) -> int:
        """Number of pages."""
        return self.data.num_pages

    @property
    def num_tokens(self) -> int:
        """Number of tokens."""
        return self.data.num_pages * self.data.page_size

    @property
    def salt(self) -> str:
        """Cache salt."""
        return self.data.salt


class EvictionRuleTests:
    """Conformance tests of an eviction rule.

    Derive from this class and override the fixture `rule`.
    """

    @pytest.fixture
    def rule(self) -> EvictionRule:
        """Return the rule under test, built with its options."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture rule")

    @pytest.fixture
    def max_rank_s(self) -> float:
        """Return the processor time in seconds that a rank may take, on average."""
        return MAX_RANK_S

    @pytest.fixture
    def order(self) -> Callable[[LeafData], Any] | None:
        """Return a sort key, a function of a leaf: smaller keys are evicted first; None: unknown."""
        return None

    @pytest.fixture
    def expiry(self) -> Callable[[LeafData], float | None] | None:
        """Return a function that computes a leaf's time of expiry, as `expires_at` does; None: unknown."""
        return None

    def test_leaves_leave_in_the_stated_order(self, rule: EvictionRule, order: Any) -> None:
        if order is None:
            pytest.skip(
                "the rule does not have the capability order (a function: leaf → what leaves are sorted by)"
            )
        leaves = sorted(example_leaves(), key=order)
        ranks = [rule.rank(ExampleLeaf(data)) for data in leaves]
        for first, second, rank, next_rank in zip(leaves, leaves[1:], ranks, ranks[1:], strict=False):
            assert rank <= next_rank, f"{second} leaves before {first}"

    def test_leaves_expire_at_the_stated_time(self, rule: EvictionRule, expiry: Any) -> None:
        if expiry is None:
            pytest.skip(
                "the rule does not have the capability expiry (a function: leaf → when it expires, or None)"
            )
        for data in example_leaves():
            assert check_time(rule.expires_at(ExampleLeaf(data))) == expiry(data), (
                f"{data} expires at another time"
            )

    def test_every_rank_is_a_finite_number(self, rule: EvictionRule) -> None:
        for data in example_leaves():
            check_rank(rule.rank(ExampleLeaf(data)))

    def test_a_use_never_lowers_a_rank(self, rule: EvictionRule) -> None:
        for data in example_leaves():
            before, after = rule.rank(ExampleLeaf(data)), rule.rank(ExampleLeaf(data.used()))
            assert before <= after, f"a use of {data} lowers its rank"

    def test_a_hit_never_lowers_a_rank(self, rule: EvictionRule) -> None:
        for data in example_leaves():
            before = rule.rank(ExampleLeaf(data))
            after = rule.rank(ExampleLeaf(replace(data, hits=data.hits + 1)))
            assert before <= after, f"a hit of {data} lowers its rank"

    def test_losing_pages_never_lowers_a_rank(self, rule: EvictionRule) -> None:
        """A leaf loses pages when it is split, and when its last pages are evicted."""
        for data in example_leaves():
            before = rule.rank(ExampleLeaf(data))
            after = rule.rank(ExampleLeaf(replace(data, num_pages=-(-data.num_pages // 2))))
            assert before <= after, f"the loss of pages lowers the rank of {data}"

    def test_an_unchanged_leaf_keeps_its_rank(self, rule: EvictionRule) -> None:
        """The rank may rise as time passes and other leaves are ranked, but must never fall."""
        leaves = [ExampleLeaf(data) for data in example_leaves()]
        ranks = [rule.rank(leaf) for leaf in leaves]
        for _ in range(3):
            time.sleep(0.001)
            ranks, before = [rule.rank(leaf) for leaf in leaves], ranks
            assert all(first <= second for first, second in zip(before, ranks, strict=True))

    @pytest.mark.parametrize("seed", range(3))
    def test_a_cache_never_gives_up_the_rule(self, rule: EvictionRule, seed: int) -> None:
        """Runs a real cache under random load. The cache would replace a faulty rule."""
        isolated = IsolatedRule(rule)
        change_at_random(isolated, seed)
        assert isolated.failure is None

    def test_leaves_are_not_kept(self, rule: EvictionRule) -> None:
        """A leaf holds its tokens and pages. If a rule kept the leaf, they could not be freed."""
        leaf = ExampleLeaf(LeafData())
        before = sys.getrefcount(leaf)
        rule.rank(leaf)
        rule.expires_at(leaf)
        gc.collect()
        assert sys.getrefcount(leaf) == before, "the rule keeps a leaf"

    def test_nothing_is_kept_of_evicted_leaves(self, rule: EvictionRule) -> None:
        counts = []
        for turn in range(3):
            for i in range(10_000):
                number = 10_000 * turn + i
                at = NOW + number / 8
                leaf = ExampleLeaf(
                    LeafData(number, hits=number, floor=at, created_at=at, used_at=at, salt=f"{turn}-{i}")
                )
                rule.rank(leaf)
                rule.expires_at(leaf)
            del leaf
            gc.collect()
            counts.append(sys.getallocatedblocks())
        kept = counts[2] - counts[1]
        assert kept <= MAX_KEPT, f"{kept} blocks of memory more after 10,000 further leaves"

    def test_a_rank_costs_little(self, rule: EvictionRule, max_rank_s: float) -> None:
        """Measures processor time: the best of five runs over 2,000 leaves."""
        leaves = [ExampleLeaf(LeafData(last_use=i, hits=i % 5, num_pages=1 + i % 9)) for i in range(2_000)]
        rank, times = rule.rank, []
        for _ in range(5):
            begun = time.thread_time()
            for leaf in leaves:
                rank(leaf)
            times.append((time.thread_time() - begun) / len(leaves))
        assert min(times) <= max_rank_s, f"{1e6 * min(times):.1f} us of processor time per rank"

    def test_every_expiry_is_none_or_a_time(self, rule: EvictionRule) -> None:
        for data in example_leaves():
            check_time(rule.expires_at(ExampleLeaf(data)))

    def test_a_new_leaf_does_not_expire_at_once(self, rule: EvictionRule) -> None:
        """Like `used_at`, a time of expiry is a point in time, not a duration."""
        at = check_time(rule.expires_at(ExampleLeaf(LeafData())))
        assert at is None or at > NOW

    def test_expiry_is_on_the_clock_of_the_leaf(self, rule: EvictionRule) -> None:
        """If all times of a leaf move, its expiry moves equally. Other clocks have no influence."""
        for data in example_leaves():
            leaf, later = ExampleLeaf(data), ExampleLeaf(data.delayed(DELAY_S))
            before, after = check_time(rule.expires_at(leaf)), check_time(rule.expires_at(later))
            if before is None or after is None:
                assert before is after, f"{data} expires at {before}, and {DELAY_S} s later at {after}"
            else:
                moved = after - before
                assert abs(moved - DELAY_S) <= ROUNDING_S, (
                    f"{data}, {DELAY_S} s later: expiry moves by {moved}"
                )

    def test_a_use_never_hastens_expiry(self, rule: EvictionRule) -> None:
        for data in example_leaves():
            hit = replace(data.used(), hits=data.hits + 1)
            before, after = (check_time(rule.expires_at(ExampleLeaf(each))) for each in (data, hit))
            assert after is None or (before is not None and before <= after), (
                f"a use of {data} hastens expiry"
            )


def example_leaves() -> Iterator[LeafData]:
    """Yield leaves with extreme attributes, and random ones."""
    yield LeafData()
    yield LeafData(last_use=0, created_at=0.0, used_at=0.0)
    yield LeafData(last_use=2**48 - 1, hits=10**9, floor=1e18, num_pages=10**6)
    yield LeafData(floor=-1e18)
    yield LeafData(salt='"\\\n\0\x1b[31m\u2028é漢🙂' + "x" * 5_000, num_pages=3)
    rng = random.Random(0)
    for _ in range(300):
        created = NOW - rng.choice([0.0, 1.0, 1e5]) * rng.random()
        yield LeafData(
            last_use=rng.randrange(10 ** rng.randrange(1, 9)),
            hits=rng.choice([0, 0, 1, 2, rng.randrange(1000)]),
            floor=rng.choice([0.0, rng.random(), 1e3 * rng.random()]),
            created_at=created,
            used_at=created + (NOW - created) * rng.random(),
            num_pages=rng.choice([1, 2, rng.randrange(1, 5000)]),
            page_size=rng.choice([1, 16]),
            salt=rng.choice(["", "", "alice", "bob"]),
        )


def change_at_random(rule: IsolatedRule, seed: int) -> None:
    """Insert, look up, evict and expire prefixes in a small cache that uses a rule."""
    rng = random.Random(seed)
    pool = KVPool(60, 1)
    cache = RadixCache(pool, rule)
    for _ in range(3_000):
        cache.now += rng.choice([0.0, 0.01, 5.0])
        cache.expire()
        token_ids = np.array([rng.randrange(3) for _ in range(rng.randrange(1, 12))], np.int32)
        salt = rng.choice(["", "", "alice"])
        node, found = cache.match(token_ids, salt)
        draw = rng.randrange(4)
        if draw == 0:
            cache.evict(rng.randrange(8))
        elif draw == 1:
            cache.count(node, len(found), len(token_ids))
        else:
            cache.lock(node)
            num_new = len(token_ids) - len(found)
            if pool.num_free + cache.evict(max(0, num_new - pool.num_free)) >= num_new:
                cache.insert(token_ids, np.concatenate([found, pool.allocate(num_new)]), salt)
            cache.unlock(node)
