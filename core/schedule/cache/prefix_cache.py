"""Interface of a prefix cache, and the cache that keeps nothing (`--disable-radix-cache`).

A cache owns the pages that it got by `insert`, until it evicts them to the pool. Users of the cache's pages lock the node
at which the pages end; the cache does not evict a locked node or any node above it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .kv_pool import Pages
    from .subscriptions import Group

TokenIds = npt.NDArray[np.int32]

NO_PAGES = np.empty(0, dtype=np.int32)


class CacheNode:
    """A run of tokens in the tree: an edge from its parent, and the pages that hold these tokens.

    Attributes:
        key: the tokens as bytes (int32 each), a whole number of pages; empty for the root.
        pages: pages of the tokens, in order.
        locks: number of users that hold this node or one below it.
        hits: number of requests that found this node (`count`).
        last_use: the cache's count of matches and inserts, at the last one that used this node.
        used_at: time of the last use, in seconds.
        floor: the cache's floor at the last use: the largest number with which a leaf was evicted.
        is_listed: whether the cache's eviction list has an entry for it.
        groups: groups of subscriptions whose match ends here, by their next page; None: there are none.
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


class Subscription:
    """A prompt whose cached length the cache keeps up to date.

    Attributes:
        token_ids: the prompt's token ids that may come from the cache: [n].
        salt: salt of the prompt; it shares prefixes only with prompts of the same salt.
        index: the subscriber's own index of the prompt.
        num_tokens: number of leading tokens that are cached.
        leads: above 0 if its next tokens are being computed; larger if they are more certain to be computed soon.
        keeps: whether the cache locks its cached part.
        group: the cache's group of it; None: the cache has no groups, or the subscription has ended.
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

    Prefixes of different salts are different prefixes.

    This class implements subscriptions in the simplest way: it matches every subscription again. A cache for thousands
    of them overrides this, and tracks which subscriptions a change affects.
    """

    def __init__(self) -> None:
        self._subscriptions: dict[int, Subscription] = {}

    def subscribe(self, token_ids: TokenIds, salt: str, index: int) -> Subscription:
        """Start to keep the cached length of a prompt up to date. `num_tokens` is correct at once.

        Args:
            token_ids: the prompt's token ids; kept, not copied, so they must not change during the subscription.
            salt: salt of the prompt.
            index: index of the subscription, unique among all subscriptions.
        """
        subscription = self._subscriptions[index] = Subscription(token_ids, salt, index)
        subscription.num_tokens = self.match_length(token_ids, salt)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        del self._subscriptions[subscription.index]

    def lead(self, subscription: Subscription, rank: int) -> None:
        """Record that the tokens of a subscribed prompt are being computed, until the subscription ends.

        Args:
            rank: above 0; larger if the tokens are more certain to be computed soon.
        """
        subscription.leads = rank

    def take_moved(self) -> list[Subscription]:
        """Update `num_tokens` of all subscriptions; return the subscriptions that changed since the last call."""
        moved = []
        for subscription in self._subscriptions.values():
            before, subscription.num_tokens = (
                subscription.num_tokens,
                self.match_length(subscription.token_ids, subscription.salt),
            )
            if subscription.num_tokens != before:
                moved.append(subscription)
        return moved

    def num_awaited(self, subscription: Subscription, rank: int) -> int:
        """Return how many tokens beyond its cached ones a subscription shares with a leader of at least this rank.

        These tokens are being computed and will be in the cache. Call `take_moved` first after any change.
        """
        leaders = [
            each
            for each in self._subscriptions.values()
            if each.leads >= rank and each.salt == subscription.salt
        ]
        return max(
            (self._num_shared(subscription, each) for each in leaders if each is not subscription), default=0
        )

    @staticmethod
    def _num_shared(subscription: Subscription, leader: Subscription) -> int:
        """Return how many tokens of a subscription, beyond its cached ones, are those of a leader."""
        if leader.num_tokens < subscription.num_tokens:
            return 0
        size = min(len(subscription.token_ids), len(leader.token_ids))
        differ = np.flatnonzero(subscription.token_ids[:size] != leader.token_ids[:size])
        common = int(differ[0]) if len(differ) else size
        return max(0, common - subscription.num_tokens)

    @abstractmethod
    def match(self, token_ids: TokenIds, salt: str = "") -> Match:
        """Return the longest cached prefix, in whole pages. The caller locks the node before it makes room."""

    @abstractmethod
    def match_length(self, token_ids: TokenIds, salt: str = "") -> int:
        """Return how many tokens `match` would find. Changes nothing."""

    @abstractmethod
    def count(self, node: CacheNode, num_found: int, num_asked: int, above: CacheNode | None = None) -> None:
        """Count the tokens that an admitted request has found. `match` does not count, as it may be repeated.

        Args:
            node: node at which the match ends.
            num_found: number of tokens found.
            num_asked: number of tokens looked up.
            above: this node and the nodes above it were counted before.
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
            that page, and the caller keeps the given one.
        """

    @abstractmethod
    def lock(self, node: CacheNode) -> None:
        """Keep a node, and what is above it, from eviction."""

    @abstractmethod
    def unlock(self, node: CacheNode) -> None:
        """Undo one `lock`."""

    @abstractmethod
    def evict(self, count: int) -> int:
        """Free at least `count` pages to the pool, or all unlocked pages if there are fewer; return the number freed."""

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
        """Pages owned that stay locked while nothing runs."""


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
