"""The eviction rule `lfu`: least often used prefixes first."""

from __future__ import annotations

from llmfw.core import CacheLeaf, EvictionRule

TICKS = 2**48
"""Factor that exceeds every `last_use`, so that `last_use` only breaks ties."""


class LFU(EvictionRule):
    """Ranks leaves by their number of hits; among equals, the least recently used leaf goes first.

    Suits a fixed set of documents or few-shot prompts. A leaf that was popular once stays forever, even if
    unused since.
    """

    def rank(self, leaf: CacheLeaf) -> float:
        return leaf.hits * TICKS + leaf.last_use
