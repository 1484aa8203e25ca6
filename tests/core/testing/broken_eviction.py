"""Eviction rules that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from llmfw.core import CacheLeaf, EvictionRule
from llmfw.core.testing import EvictionRuleTests
from llmfw.core.testing.eviction_rules import LeafData


class Broken(EvictionRule):
    """Ranks by last use, and has room for what a broken rule keeps."""

    def __init__(self, options: EvictionRule.Options) -> None:
        super().__init__(options)
        self.leaf: CacheLeaf | None = None
        self.salts: set[str] = set()
        self.calls = itertools.count()

    def rank(self, leaf: CacheLeaf) -> float:
        return leaf.last_use


class DividesByHits(Broken):
    def rank(self, leaf: CacheLeaf) -> float:
        return leaf.last_use / leaf.hits


class KeepsHitsForever(Broken):
    def rank(self, leaf: CacheLeaf) -> float:
        return math.inf if leaf.hits else leaf.last_use


class EvictsNewestFirst(Broken):
    def rank(self, leaf: CacheLeaf) -> float:
        return -leaf.used_at


class EvictsPopularFirst(Broken):
    def rank(self, leaf: CacheLeaf) -> float:
        return -leaf.hits


class EvictsSmallestFirst(Broken):
    def rank(self, leaf: CacheLeaf) -> float:
        return leaf.num_tokens


class RanksByAge(Broken):
    def rank(self, leaf: CacheLeaf) -> float:
        return leaf.used_at - time.monotonic()


class FailsLate(Broken):
    def rank(self, leaf: CacheLeaf) -> float:
        assert next(self.calls) <= 1000
        return leaf.last_use


class HalvesHits(Broken):
    def rank(self, leaf: CacheLeaf) -> float:
        leaf.hits //= 2
        return leaf.hits


class KeepsLastLeaf(Broken):
    def rank(self, leaf: CacheLeaf) -> float:
        self.leaf = leaf
        return leaf.last_use


class KeepsEverySalt(Broken):
    def rank(self, leaf: CacheLeaf) -> float:
        self.salts.add(leaf.salt)
        return leaf.last_use


class KeepsEveryTime(Broken):
    times: ClassVar[set[float]] = set()

    def rank(self, leaf: CacheLeaf) -> float:
        self.times.add(leaf.created_at)
        return leaf.last_use


class ComputesForLong(Broken):
    def rank(self, leaf: CacheLeaf) -> float:
        return leaf.last_use + sum(i * i for i in range(1000))


class ExpiresAtText(Broken):
    def expires_at(self, leaf: CacheLeaf) -> float | None:
        return f"{leaf.used_at + 60}"  # type: ignore[return-value]


class ExpiresByDuration(Broken):
    def expires_at(self, leaf: CacheLeaf) -> float | None:
        return 60.0


class ExpiresSoonerIfUsed(Broken):
    def expires_at(self, leaf: CacheLeaf) -> float | None:
        return leaf.created_at + 60 - leaf.hits


class ExpiresByTheDay(Broken):
    def expires_at(self, leaf: CacheLeaf) -> float | None:
        return time.time() + 60


class IgnoresHits(Broken):
    """Ranks by last use, and is meant to rank by hits first."""


class ExpiresTwice(Broken):
    """Adds a minute to the last use and another one for hits, and is meant to add one."""

    def expires_at(self, leaf: CacheLeaf) -> float | None:
        return leaf.used_at + (120.0 if leaf.hits else 60.0)


class OfKind(EvictionRuleTests):
    kind: type[EvictionRule]

    @pytest.fixture
    def rule(self) -> EvictionRule:
        return self.kind(self.kind.Options())

    @pytest.fixture
    def order(self) -> Callable[[LeafData], Any] | None:
        return (lambda leaf: (leaf.hits, leaf.last_use)) if self.kind is IgnoresHits else None

    @pytest.fixture
    def expiry(self) -> Callable[[LeafData], float | None] | None:
        return (lambda leaf: leaf.used_at + 60) if self.kind is ExpiresTwice else None


def test_class(kind: type[EvictionRule]) -> Any:
    """Return a test class for a rule."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in Broken.__subclasses__():
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
