"""What the engine needs of a prefix cache, and the cache that keeps nothing (`--disable-radix-cache`).

A cache owns pages that were given to it by `insert`, until it evicts them to the pool. Whoever uses pages of the
cache locks the node they end at; a locked node and all nodes above it are not evicted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .kv_pool import Pages

TokenIds = npt.NDArray[np.int32]

NO_PAGES = np.empty(0, dtype=np.int32)


class CacheNode:
    """A run of tokens in the tree: an edge from its parent, and the pages that hold these tokens.

    Attributes:
        key: the tokens as bytes (int32 each), a whole number of pages; empty for the root.
        pages: one for each page of tokens.
        locks: how many users hold this node or one below it.
        last_use: clock of the last match or insert that went through here.
        is_listed: the cache's eviction list has an entry for it.
    """

    __slots__ = ("children", "is_listed", "key", "last_use", "locks", "pages", "parent")

    def __init__(self, key: bytes, pages: Pages, parent: CacheNode | None, last_use: int = 0) -> None:
        self.key = key
        self.pages = pages
        self.parent = parent
        self.children: dict[bytes, CacheNode] = {}
        self.locks = 0
        self.last_use = last_use
        self.is_listed = False


class Match(NamedTuple):
    """A cached prefix: the node it ends at, and its pages from the first token on."""

    node: CacheNode
    pages: Pages


class PrefixCache(ABC):
    """Which token prefixes are in which pages."""

    @abstractmethod
    def match(self, token_ids: TokenIds) -> Match:
        """Return the longest cached prefix, in whole pages. The caller locks the node before it makes room."""

    @abstractmethod
    def match_length(self, token_ids: TokenIds) -> int:
        """Return how many tokens `match` would find. Changes nothing."""

    @abstractmethod
    def insert(self, token_ids: TokenIds, pages: Pages) -> Match:
        """Give the pages of a prefix to the cache.

        Args:
            token_ids: whole pages of tokens, from the first on.
            pages: where their keys and values are.

        Returns:
            What the cache owns now. Where it had a page for the same tokens already, that one is in the result
            and the given one stays the caller's.
        """

    @abstractmethod
    def lock(self, node: CacheNode) -> None:
        """Keep a node, and what is above it, from eviction."""

    @abstractmethod
    def unlock(self, node: CacheNode) -> None:
        """Undo one `lock`."""

    @abstractmethod
    def evict(self, count: int) -> int:
        """Free at least `count` pages to the pool if so many are not locked; return how many were freed."""

    @property
    @abstractmethod
    def num_pages(self) -> int:
        """Pages owned."""

    @property
    @abstractmethod
    def num_evictable_pages(self) -> int:
        """Pages owned and not locked."""


class NoPrefixCache(PrefixCache):
    """Keeps nothing: every prompt is computed whole."""

    num_pages = 0
    num_evictable_pages = 0

    def __init__(self) -> None:
        self._nothing = Match(CacheNode(b"", NO_PAGES, None), NO_PAGES)

    def match(self, token_ids: TokenIds) -> Match:
        """Return the empty prefix."""
        return self._nothing

    def match_length(self, token_ids: TokenIds) -> int:
        """Return 0."""
        return 0

    def insert(self, token_ids: TokenIds, pages: Pages) -> Match:
        """Take nothing; all pages stay the caller's."""
        return self._nothing

    def lock(self, node: CacheNode) -> None:
        """Do nothing."""

    def unlock(self, node: CacheNode) -> None:
        """Do nothing."""

    def evict(self, count: int) -> int:
        """Return 0."""
        return 0
