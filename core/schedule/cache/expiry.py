"""The times at which leaves of the prefix cache expire, for eviction rules that set them.

A heap orders the leaves by time. An entry is updated only when its time comes: using a leaf postpones its
time, but does not change the heap.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .isolated_rule import IsolatedRule
    from .prefix_cache import CacheNode

MIN_COMPACTED = 1024
"""Minimum number of entries at which the heap is searched for nodes that are no longer leaves."""


class Expiry:
    """Finds the leaves that have expired.

    Args:
        rule: rule that sets the times.
    """

    def __init__(self, rule: IsolatedRule) -> None:
        self._rule = rule
        self._heap: list[tuple[float, int, CacheNode]] = []  # time, tie-break, node
        self._num_added = 0
        self._compact_at = MIN_COMPACTED

    @property
    def next_at(self) -> float:
        """Time at which to call `take`; infinity: no leaf expires."""
        return self._heap[0][0] if self._heap else math.inf

    def watch(self, leaf: CacheNode) -> None:
        """Add an evictable leaf, unless it is watched already or never expires."""
        if leaf.is_timed or (at := self._rule.expires_at(leaf)) is None:
            return
        if len(self._heap) >= self._compact_at:
            self._compact()
        leaf.is_timed = True
        self._num_added += 1
        heapq.heappush(self._heap, (at, self._num_added, leaf))

    def take(self, now: float) -> CacheNode | None:
        """Look at the first entry, whose time has come; return its leaf if it has expired.

        Otherwise, move or drop the entry, and return None.
        """
        _, tie, leaf = self._heap[0]
        at = self._rule.expires_at(leaf) if leaf.is_evictable else None
        if at is not None and at > now:
            heapq.heapreplace(self._heap, (at, tie, leaf))
            return None
        heapq.heappop(self._heap)
        leaf.is_timed = False
        return None if at is None else leaf

    def _compact(self) -> None:
        kept = []
        for entry in self._heap:
            if entry[2].is_evictable:
                kept.append(entry)
            else:
                entry[2].is_timed = False
        self._heap = kept
        heapq.heapify(kept)
        self._compact_at = max(MIN_COMPACTED, 2 * len(kept))
