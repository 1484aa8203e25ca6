"""The eviction rule `lru`: least recently used prefixes first."""

from __future__ import annotations

from llmfw.core import CacheLeaf, EvictionRule


class LRU(EvictionRule):
    """Ranks leaves by last use. Suits conversations, whose next turn comes soon or never."""

    def rank(self, leaf: CacheLeaf) -> float:
        return leaf.last_use
