"""Interface of a prefix cache, and an implementation that caches nothing (`--disable-radix-cache`).

A cache owns the pages that it gets by `insert`, until it evicts them to the pool. A sequence that uses cached
pages locks the node at which the pages end; the cache does not evict a locked node or any node above it.
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
        pages: pages of the tokens, in order.
        locks: number of locks on this node and the nodes below it.
        hits: number of requests that found this node (`count`).
        last_use: logical time of the last use: the number of matches and inserts in the cache until then.
        used_at: time of the last use, in seconds.
        floor: the cache's floor at the last use, that is, the largest number with which a leaf had been
            evicted.
        is_listed: whether the cache's eviction heap has an entry for this node.
        groups: groups of watches whose match ends here, by their next page; None if there are none.
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
    """A cached prefix: the node at which it ends, and its pages from the first token on."""

    node: CacheNode
    pages: Pages


class Watch:
    """A prompt whose cached length the cache tracks.

    Attributes:
        token_ids: the prompt's token ids that may come from the cache: [n].
        salt: cache salt of the prompt, which shares prefixes only with prompts of the same salt.
        index: index that the caller gave the watch.
        num_tokens: number of leading tokens that are cached.
        leads: rank as a leader: 0 if nothing computes the prompt's next tokens; larger if they are more
            certain to be computed soon.
        keeps: whether the cache locks the cached part of the prompt.
        group: the cache's group that holds this watch; None if the cache has no groups or the watch has
            ended.
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
    """Maps token prefixes to pages.

    Prompts with different salts share no prefix.

    This class implements watches in the simplest way: it matches every watched prompt again. A cache for
    thousands of watches should override these methods and track which watches a change affects.
    """

    def __init__(self) -> None:
        self._watches: dict[int, Watch] = {}

    def watch(self, token_ids: TokenIds, salt: str, index: int) -> Watch:
        """Start to track how much of a prompt is cached.

        The returned watch's `num_tokens` is already correct.

        Args:
            token_ids: the prompt's token ids. They are not copied, and must not change while they are
                watched.
            salt: salt of the prompt.
            index: index of the watch, unique among all watches.
        """
        watch = self._watches[index] = Watch(token_ids, salt, index)
        watch.num_tokens = self.match_length(token_ids, salt)
        return watch

    def unwatch(self, watch: Watch) -> None:
        """Stop tracking a watched prompt."""
        del self._watches[watch.index]

    def lead(self, watch: Watch, rank: int) -> None:
        """Mark a watch as a leader, whose next tokens are being computed, until `unwatch`.

        Args:
            rank: number above 0; larger if the tokens are more certain to be computed soon.
        """
        watch.leads = rank

    def take_moved(self) -> list[Watch]:
        """Update `num_tokens` of all watches; return the watches that changed since the last call."""
        moved = []
        for watch in self._watches.values():
            before, watch.num_tokens = watch.num_tokens, self.match_length(watch.token_ids, watch.salt)
            if watch.num_tokens != before:
                moved.append(watch)
        return moved

    def num_awaited(self, watch: Watch, rank: int) -> int:
        """Return how many of a watch's next uncached tokens are shared by a leader of at least this rank.

        These tokens are being computed and will soon be cached. After any change of the cache, call
        `take_moved` first.
        """
        leaders = [each for each in self._watches.values() if each.leads >= rank and each.salt == watch.salt]
        return max((self._num_shared(watch, each) for each in leaders if each is not watch), default=0)

    @staticmethod
    def _num_shared(watch: Watch, leader: Watch) -> int:
        """Return how many of a watch's next uncached tokens equal those of a leader."""
        if leader.num_tokens < watch.num_tokens:
            return 0
        size = min(len(watch.token_ids), len(leader.token_ids))
        differ = np.flatnonzero(watch.token_ids[:size] != leader.token_ids[:size])
        common = int(differ[0]) if len(differ) else size
        return max(0, common - watch.num_tokens)

    @abstractmethod
    def match(self, token_ids: TokenIds, salt: str = "") -> Match:
        """Return the longest cached prefix, in whole pages.

        Callers must lock its node before evicting anything.
        """

    @abstractmethod
    def match_length(self, token_ids: TokenIds, salt: str = "") -> int:
        """Return how many tokens `match` would find. Does not count as a use."""

    @abstractmethod
    def count(self, node: CacheNode, num_found: int, num_asked: int, above: CacheNode | None = None) -> None:
        """Update the hit statistics for an admitted request.

        `match` does not, as it may run several times for one.

        Args:
            node: node at which the match ends.
            num_found: number of tokens found.
            num_asked: number of tokens looked up.
            above: do not count this node and the nodes above it, which were counted before; None: count all.
        """

    @abstractmethod
    def insert(self, token_ids: TokenIds, pages: Pages, salt: str = "") -> Match:
        """Give the pages of a prefix to the cache.

        Args:
            token_ids: whole pages of tokens, from the first on.
            pages: pages of their keys and values.
            salt: salt of the prefix.

        Returns:
            The prefix as the cache owns it now. If the cache already had a page for the same tokens, the result holds
            that page, and the given one still belongs to the caller.
        """

    @abstractmethod
    def lock(self, node: CacheNode) -> None:
        """Protect a node and the nodes above it from eviction."""

    @abstractmethod
    def unlock(self, node: CacheNode) -> None:
        """Undo one `lock`."""

    @abstractmethod
    def evict(self, count: int) -> int:
        """Free at least `count` pages to the pool, or all unlocked pages if there are fewer; return the number freed."""

    @property
    @abstractmethod
    def num_pages(self) -> int:
        """Number of pages that the cache owns."""

    @property
    @abstractmethod
    def num_evictable_pages(self) -> int:
        """Number of pages that the cache owns and that are not locked."""

    @property
    @abstractmethod
    def num_kept_pages(self) -> int:
        """Number of owned pages that pins lock, and that therefore stay locked even if no request runs."""


class NoPrefixCache(PrefixCache):
    """A prefix cache that caches nothing: every prompt is computed in full."""

    num_pages = 0
    num_evictable_pages = 0
    num_kept_pages = 0

    def __init__(self) -> None:
        super().__init__()
        self._nothing = Match(CacheNode(b"", NO_PAGES, None), NO_PAGES)

    def match(self, token_ids: TokenIds, salt: str = "") -> Match:
        """Return an empty match."""
        return self._nothing

    def match_length(self, token_ids: TokenIds, salt: str = "") -> int:
        """Return 0."""
        return 0

    def count(self, node: CacheNode, num_found: int, num_asked: int, above: CacheNode | None = None) -> None:
        """Do nothing."""

    def insert(self, token_ids: TokenIds, pages: Pages, salt: str = "") -> Match:
        """Return an empty match; all pages still belong to the caller."""
        return self._nothing

    def lock(self, node: CacheNode) -> None:
        """Do nothing."""

    def unlock(self, node: CacheNode) -> None:
        """Do nothing."""

    def evict(self, count: int) -> int:
        """Return 0."""
        return 0
