"""The eviction rule `size`: fewest uses per page first."""

from __future__ import annotations

from llmfw.core import CacheLeaf, EvictionRule


class Size(EvictionRule):
    """Ranks leaves by uses per page: GreedyDual-Size-Frequency (Cherkasova, 1998), with equal cost per miss.

    Small leaves that are used often stay. This favors the number of requests with a cache hit over the number
    of tokens hit. The rank includes the leaf's floor, so that unused leaves fall behind newer leaves.
    """

    def rank(self, leaf: CacheLeaf) -> float:
        return leaf.floor + (1 + leaf.hits) / leaf.num_pages
