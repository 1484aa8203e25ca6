"""The order in which leaves of the radix tree are evicted: a heap, by the ranks of an eviction rule.

Ranks must never decrease. So the heap updates an entry only when the entry reaches the top, and using a node
does not change the heap. The heap does not trust the rule: each method ends after at most one pass over all
leaves, whatever the rule returns; and if the rank of the leaf at the top has decreased, the rule is not used
again.
"""

from __future__ import annotations

import heapq

from .expiry import Expiry
from .isolated_rule import IsolatedRule
from .prefix_cache import CacheNode


class EvictionHeap:
    """Orders the evictable leaves by rank.

    Args:
        rule: rule that ranks the leaves.

    Attributes:
        expiry: the leaves by the time at which they expire; None: they do not expire.
    """

    def __init__(self, rule: IsolatedRule) -> None:
        self.expiry = Expiry(rule) if rule.expires else None
        self._rule = rule
        self._generation = rule.generation
        self._leaves: list[tuple[float, int, CacheNode]] = []  # rank, tie-break, node
        self._num_added = 0
        self._num_gone = 0  # entries of leaves that have expired
        self._is_fresh = False

    @property
    def top_rank(self) -> float:
        """Rank of the leaf that `next_leaf` returned."""
        return self._leaves[0][0]

    def rank(self, leaf: CacheNode) -> float:
        """Return the current rank of a leaf."""
        return self._rule.rank(leaf)

    def begin(self) -> None:
        """Start an eviction. Ranks may have changed since the last eviction."""
        self._is_fresh = False

    def next_leaf(self) -> CacheNode | None:
        """Return the next leaf to evict, now at the top of the heap; None if no leaf is evictable."""
        leaves, rule = self._leaves, self._rule
        num_stale = 0
        while leaves:
            if rule.generation != self._generation:
                self._rank_all()
                continue
            before, tie, leaf = leaves[0]
            if (
                leaf.locks or leaf.children or leaf.parent is None
            ):  # if it becomes evictable, it is added again
                heapq.heappop(leaves)
                leaf.is_listed = False
                continue
            if self._is_fresh or (now := rule.rank(leaf)) == before:
                return leaf
            if now < before:
                rule.note_decrease(before, now)
            elif num_stale * 8 < len(leaves):
                heapq.heapreplace(leaves, (now, tie, leaf))
                num_stale += 1
            else:  # if many entries are stale, correcting all at once is faster
                self._rank_all()
        return None

    def add(self, node: CacheNode) -> None:
        """Add a node if it is an evictable leaf and not yet in the heap."""
        if node.children or node.locks or node.parent is None:
            return
        if not node.is_listed:
            heapq.heappush(self._leaves, self._entry(node))
        if self.expiry is not None:
            self.expiry.watch(node)

    def pop(self) -> None:
        """Remove the top."""
        heapq.heappop(self._leaves)

    def replace(self, leaf: CacheNode) -> None:
        """Replace the top with an evictable leaf that is not in the heap."""
        heapq.heapreplace(self._leaves, self._entry(leaf))
        if self.expiry is not None:
            self.expiry.watch(leaf)

    def note_gone(self) -> None:
        """Count a leaf that was removed from the tree and is not at the top. Its entry is removed later."""
        self._num_gone += 1
        if self._num_gone * 2 > len(self._leaves):
            self._rank_all()

    def _entry(self, leaf: CacheNode) -> tuple[float, int, CacheNode]:
        leaf.is_listed = True
        self._num_added += 1
        return self._rule.rank(leaf), self._num_added, leaf

    def _rank_all(self) -> None:
        """Compute all ranks again, and drop the entries of nodes that cannot be evicted."""
        self._generation, rank = self._rule.generation, self._rule.rank
        entries = []
        for _, tie, leaf in self._leaves:
            if leaf.is_evictable:
                entries.append((rank(leaf), tie, leaf))
            else:
                leaf.is_listed = False
        self._leaves[:] = entries
        heapq.heapify(self._leaves)
        self._is_fresh, self._num_gone = True, 0
