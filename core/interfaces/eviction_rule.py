"""The interface of an eviction rule, which decides which prefixes leave the prefix cache first.

The cache is a tree. An edge is a run of tokens in whole pages, and pages are evicted from the ends of the
leaves that no request and no pin holds. The rule gives each such leaf a number, its rank. The cache keeps the
leaves in a heap, and evicts the leaf with the smallest rank first.

A faulty rule fails no request: if a rule raises, returns an invalid value, or lowers a leaf's rank, llmfw
logs that once with the name of the plugin. From then on, the least recently used leaf is evicted first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec


class CacheLeaf:
    """A leaf of the prefix cache, as an eviction rule sees it: read-only, and valid during the call only.

    Times are in seconds of the engine's monotonic clock, which is the clock of `time.monotonic()`.

    Attributes:
        last_use: logical time of the last use, counted in lookups and inserts; 0 or more, below 2**48. Each
            use raises it.
        hits: number of admitted requests that found this leaf in the cache.
        floor: largest rank of all leaves that were evicted before this leaf's last use. If a rule adds
            `floor` to its ranks, old popularity fades; see the bundled rule `size`.
        created_at: time when the leaf's tokens were first cached.
        used_at: time of the last use.
    """

    __slots__ = ("created_at", "floor", "hits", "last_use", "used_at")

    last_use: int
    hits: int
    floor: float
    created_at: float
    used_at: float

    @property
    def num_pages(self) -> int:
        """Number of pages, 1 or more. Decreases if the leaf is split, or loses its last pages."""
        raise NotImplementedError

    @property
    def num_tokens(self) -> int:
        """Number of tokens: `num_pages` times the page size."""
        raise NotImplementedError

    @property
    def salt(self) -> str:
        """Cache salt of the requests that may use the leaf; "" for no salt. Reading it walks up the tree."""
        raise NotImplementedError


class EvictionRule(ABC):
    """Ranks the leaves of the prefix cache. The engine builds one rule when it starts."""

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o eviction.key=value`. A rule with options overrides this."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @abstractmethod
    def rank(self, leaf: CacheLeaf) -> float:
        """Return a leaf's rank, a finite float or int; the leaf with the smallest rank is evicted first.

        The rank of a leaf must never decrease: not when the leaf is used or hit, not when it loses pages, and
        not as time passes. The cache computes the rank when the leaf may first be evicted, and again before
        it evicts the leaf. A rank should change only when the leaf changes. If ranks change with time alone,
        each step that evicts needs a pass over all leaves.

        Called up to a few times for each request, in the engine's thread: it should take about a
        microsecond. Must not change or keep the leaf.
        """

    def expires_at(self, leaf: CacheLeaf) -> float | None:
        """Return the time at which to remove a leaf although there is room; None: never.

        The time may move when the leaf is used. The cache asks when the leaf may first be evicted, and again
        at that time; it removes the leaf if the time has not moved. Leaves that requests or pins hold stay
        until they are released. A step removes up to 256 leaves; an idle engine removes them when their time
        comes.

        Called only if a rule overrides it. Must not change or keep the leaf.
        """
        return None
