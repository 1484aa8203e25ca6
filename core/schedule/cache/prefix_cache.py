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
    from .watches import Group

TokenIds = npt.NDArray[np.int32]

NO_PAGES = np.empty(0, dtype=np.int32)


class CacheNode:
    """A run of tokens in the tree: an edge from its parent, and the pages that hold these tokens.

    Attributes:
        key: the tokens as bytes (int32 each), a whole number of pages; empty for the root.
        pages: one for each page of tokens.
        locks: how many users hold this node or one below it.
        hits: how many requests found what is here (`count`).
        last_use: clock of the last match or insert that did, a count of them.
        used_at: when that was, in seconds.
        floor: of the cache, at that time: the largest number by which a leaf was evicted.
        is_listed: the cache's eviction list has an entry for it.
        groups: of watches whose match ends here, by their next page; None: no watch's does.
    """

    __slots__ = (
        "children",
        "floor",
        "groups",
        "hits",
        "is_listed",
        "key",
        "last_use",
        "locks",
        "pages",
        "parent",
        "used_at",
    )

    def __init__(self, key: bytes, pages: Pages, parent: CacheNode | None, last_use: int = 0) -> None:
        self.key = key
        self.pages = pages
        self.parent = parent
        self.children: dict[bytes, CacheNode] = {}
        self.locks = 0
        self.hits = 0
        self.last_use = last_use
        self.used_at = 0.0
        self.floor = 0.0
        self.is_listed = False
        self.groups: dict[bytes, Group] | None = None


class Match(NamedTuple):
    """A cached prefix: the node it ends at, and its pages from the first token on."""

    node: CacheNode
    pages: Pages


class Watch:
    """A prompt of which the cache tells, as it changes, how much it holds.

    Attributes:
        token_ids: of the prompt, so far as they may come from the cache: [n].
        salt: it shares prefixes with prompts of the same salt only.
        index: whatever the one who watches knows it by.
        num_tokens: how many leading tokens are cached.
        leads: above 0: its next tokens are being computed; the larger, the surer that they will be soon.
        keeps: the cache locks it as far as it is cached.
        group: the cache's own; None: it does not group, or the watch was forgotten.
    """

    __slots__ = ("group", "index", "keeps", "leads", "num_tokens", "salt", "token_ids")

    def __init__(self, token_ids: TokenIds, salt: str, index: int) -> None:
        self.token_ids = token_ids
        self.salt = salt
        self.index = index
        self.num_tokens = 0
        self.leads = 0
        self.keeps = False
        self.group: Group | None = None


class PrefixCache(ABC):
    """Which token prefixes are in which pages.

    Prefixes of different salts are different prefixes.

    What watching means is written here in its plainest form, which asks the cache about every watch; a cache that is
    asked about thousands finds out by itself which of them a change concerns.
    """

    def __init__(self) -> None:
        self._watches: dict[int, Watch] = {}

    def watch(self, token_ids: TokenIds, salt: str, index: int) -> Watch:
        """Begin to tell how much of a prompt is cached. `num_tokens` is right at once.

        Args:
            token_ids: kept, not copied; they do not change while they are watched.
            salt: of the prompt.
            index: different for all that are watched.
        """
        watch = self._watches[index] = Watch(token_ids, salt, index)
        watch.num_tokens = self.match_length(token_ids, salt)
        return watch

    def unwatch(self, watch: Watch) -> None:
        """Forget a watch."""
        del self._watches[watch.index]

    def lead(self, watch: Watch, rank: int) -> None:
        """Take note that the tokens of a watched prompt are being computed, until it is forgotten.

        Args:
            rank: above 0; the larger, the surer that they will be soon.
        """
        watch.leads = rank

    def take_moved(self) -> list[Watch]:
        """Bring `num_tokens` of all watches up to date; return those that changed since the last call."""
        moved = []
        for watch in self._watches.values():
            before, watch.num_tokens = watch.num_tokens, self.match_length(watch.token_ids, watch.salt)
            if watch.num_tokens != before:
                moved.append(watch)
        return moved

    def num_awaited(self, watch: Watch, rank: int) -> int:
        """Return how many tokens beyond its cached ones a watch shares with one that leads with at least this rank.

        Those are being computed and will be in the cache. `take_moved` was called since the last change.
        """
        leaders = [each for each in self._watches.values() if each.leads >= rank and each.salt == watch.salt]
        return max((self._num_shared(watch, each) for each in leaders if each is not watch), default=0)

    @staticmethod
    def _num_shared(watch: Watch, leader: Watch) -> int:
        """Return how many tokens of a watch, beyond its cached ones, are those of a leader."""
        if leader.num_tokens < watch.num_tokens:
            return 0
        size = min(len(watch.token_ids), len(leader.token_ids))
        differ = np.flatnonzero(watch.token_ids[:size] != leader.token_ids[:size])
        common = int(differ[0]) if len(differ) else size
        return max(0, common - watch.num_tokens)

    @abstractmethod
    def match(self, token_ids: TokenIds, salt: str = "") -> Match:
        """Return the longest cached prefix, in whole pages. The caller locks the node before it makes room."""

    @abstractmethod
    def match_length(self, token_ids: TokenIds, salt: str = "") -> int:
        """Return how many tokens `match` would find. Changes nothing."""

    @abstractmethod
    def count(self, node: CacheNode, num_found: int, num_asked: int, above: CacheNode | None = None) -> None:
        """Take note of what a request that begins has found. `match` does not: it may be tried again and again.

        Args:
            node: at which its match ends.
            num_found: tokens of it.
            num_asked: tokens that were looked for.
            above: what is above this node, and the node, was counted before.
        """

    @abstractmethod
    def insert(self, token_ids: TokenIds, pages: Pages, salt: str = "") -> Match:
        """Give the pages of a prefix to the cache.

        Args:
            token_ids: whole pages of tokens, from the first on.
            pages: where their keys and values are.
            salt: whose prefix it is.

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

    @property
    @abstractmethod
    def num_kept_pages(self) -> int:
        """Pages owned that are locked whether or not anything runs."""


class NoPrefixCache(PrefixCache):
    """Keeps nothing: every prompt is computed whole."""

    num_pages = 0
    num_evictable_pages = 0
    num_kept_pages = 0

    def __init__(self) -> None:
        super().__init__()
        self._nothing = Match(CacheNode(b"", NO_PAGES, None), NO_PAGES)

    def match(self, token_ids: TokenIds, salt: str = "") -> Match:
        """Return the empty prefix."""
        return self._nothing

    def match_length(self, token_ids: TokenIds, salt: str = "") -> int:
        """Return 0."""
        return 0

    def count(self, node: CacheNode, num_found: int, num_asked: int, above: CacheNode | None = None) -> None:
        """Do nothing."""

    def insert(self, token_ids: TokenIds, pages: Pages, salt: str = "") -> Match:
        """Take nothing; all pages stay the caller's."""
        return self._nothing

    def lock(self, node: CacheNode) -> None:
        """Do nothing."""

    def unlock(self, node: CacheNode) -> None:
        """Do nothing."""

    def evict(self, count: int) -> int:
        """Return 0."""
        return 0
