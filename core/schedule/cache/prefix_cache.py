"""Interface of a prefix cache, and an implementation that caches nothing (`--disable-radix-cache`).

`insert` gives pages to the cache. The cache owns the pages until it evicts them to the pool. A sequence that
uses cached pages locks the node at which the pages end; the cache does not evict a locked node or any node
above it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from llmfw.core.interfaces.eviction_rule import CacheLeaf

if TYPE_CHECKING:
    from .kv_pool import Pages
    from .snapshot_slots import Snapshot
    from .subscriptions import Group

TokenIds = npt.NDArray[np.int32]

TOKEN_BYTES = 4

NO_PAGES = np.empty(0, dtype=np.int32)


class CacheNode(CacheLeaf):
    """A node of the tree: the tokens on the edge from its parent, and the pages of their keys and values.

    Eviction rules receive the node as a `CacheLeaf`, which declares the other attributes. If a rule changes
    these attributes, only ranks are affected.

    Attributes:
        key: the tokens as bytes (int32 each), a whole number of pages; empty for the root.
        pages: pages of the tokens, in order.
        locks: number of locks on this node and the nodes below it.
        is_listed: whether the cache's eviction heap has an entry for this node.
        is_timed: whether the cache's heap of expiry times has an entry for this node.
        groups: groups of subscriptions whose match ends at this node, by next page (see `subscriptions`);
            None: no groups.
        snapshot: snapshot of the states after the node's last token; None: there is none (see
            `snapshot_cache`).
        start, start_hash: position of the node's first token, and the hash of the tokens before it, if the
            cache has a journal (see `cache_journal`).
    """

    __slots__ = (
        "children",
        "groups",
        "is_listed",
        "is_timed",
        "key",
        "locks",
        "pages",
        "parent",
        "snapshot",
        "start",
        "start_hash",
    )

    def __init__(self, key: bytes, pages: Pages, parent: CacheNode | None, last_use: int = 0) -> None:
        self.key = key
        self.pages = pages
        self.parent = parent
        self.children: dict[bytes, CacheNode] = {}
        self.locks = 0
        self.hits = 0
        self.last_use = last_use
        self.created_at = 0.0
        self.used_at = 0.0
        self.floor = 0.0
        self.is_listed = False
        self.is_timed = False
        self.groups: dict[bytes, Group] | None = None
        self.snapshot: Snapshot | None = None
        self.start = self.start_hash = 0

    @property
    def num_pages(self) -> int:
        """Number of pages."""
        return len(self.pages)

    @property
    def num_tokens(self) -> int:
        """Number of tokens."""
        return len(self.key) // TOKEN_BYTES

    @property
    def salt(self) -> str:
        """Salt of the root above this node."""
        node: CacheNode | None = self
        while node is not None and not isinstance(node, Root):
            node = node.parent
        return "" if node is None else node.salt

    @property
    def is_evictable(self) -> bool:
        """Whether this is an unlocked leaf of the tree."""
        return not (self.children or self.locks or self.parent is None)


class Root(CacheNode):
    """The node above all prefixes with the same salt. It holds no tokens and is never locked."""

    __slots__ = ("_salt",)

    def __init__(self, salt: str) -> None:
        super().__init__(b"", NO_PAGES, None)
        self._salt = salt

    @property
    def salt(self) -> str:
        """Salt of the prefixes."""
        return self._salt


class Match(NamedTuple):
    """A cached prefix: the node at which it ends, and its pages from the first token on."""

    node: CacheNode
    pages: Pages


class Subscription:
    """A prompt whose cached length the cache tracks.

    Attributes:
        token_ids: the prompt's token ids that may come from the cache: [n].
        salt: cache salt of the prompt. Prompts with different salts share no prefixes.
        index: index that the caller gave the subscription.
        num_tokens: number of leading tokens that are cached, as of `subscribe` or the last `take_moved`.
        leads: rank as a prefix leader (see `prefix_leaders`); 0 if the prompt's next tokens are not being
            computed. The higher the rank, the more certain it is that these tokens will be computed soon.
        keeps: whether the cache locks the cached part of the prompt.
        group: the cache's group that holds this subscription; None if the cache has no groups or the
            subscription has ended.
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

    This class implements subscriptions in the simplest way: `take_moved` matches every subscribed prompt
    again. A cache for thousands of subscriptions should override the subscription methods, and track which
    subscriptions a change affects.

    Attributes:
        num_evicted: tokens evicted since start.
    """

    def __init__(self) -> None:
        self.num_evicted = 0
        self._subscriptions: dict[int, Subscription] = {}

    def subscribe(self, token_ids: TokenIds, salt: str, index: int) -> Subscription:
        """Start to track how much of a prompt is cached.

        The returned subscription's `num_tokens` is already correct.

        Args:
            token_ids: the prompt's token ids. The array is not copied, and must not change until
                `unsubscribe`.
            salt: salt of the prompt.
            index: index of the subscription, unique among all subscriptions.
        """
        subscription = self._subscriptions[index] = Subscription(token_ids, salt, index)
        subscription.num_tokens = self.match_length(token_ids, salt)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop tracking a subscribed prompt."""
        del self._subscriptions[subscription.index]

    def lead(self, subscription: Subscription, rank: int) -> None:
        """Mark a subscription as a leader until `unsubscribe`: its prompt's next tokens are being computed.

        Args:
            rank: number above 0; larger if the tokens are more certain to be computed soon.
        """
        subscription.leads = rank

    def take_moved(self) -> list[Subscription]:
        """Update `num_tokens` of all subscriptions; return the ones that changed since the last call."""
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
        """Return how many uncached tokens a subscription shares with a leader of at least this rank.

        These tokens are being computed and will soon be cached. After any change of the cache, call
        `take_moved` first.
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
        """Return how many uncached tokens a subscription shares with a leader.

        This number is the length of their common prefix minus the subscription's cached tokens.
        """
        if leader.num_tokens < subscription.num_tokens:
            return 0
        size = min(len(subscription.token_ids), len(leader.token_ids))
        differ = np.flatnonzero(subscription.token_ids[:size] != leader.token_ids[:size])
        common = int(differ[0]) if len(differ) else size
        return max(0, common - subscription.num_tokens)

    @abstractmethod
    def match(self, token_ids: TokenIds, salt: str = "") -> Match:
        """Return the longest cached prefix, in whole pages.

        Callers must lock the match's node before they evict any page.
        """

    @abstractmethod
    def match_length(self, token_ids: TokenIds, salt: str = "") -> int:
        """Return the number of tokens that `match` would find. Does not count as a use."""

    @abstractmethod
    def count(self, node: CacheNode, num_found: int, num_asked: int, above: CacheNode | None = None) -> None:
        """Update the hit statistics for an admitted request.

        `match` does not update them, because it may run several times for one request.

        Args:
            node: node at which the match ends.
            num_found: number of tokens found.
            num_asked: number of tokens looked up.
            above: node at which the request's previous match ended. This node and the nodes above it have
                been counted, and are not counted again. None: all nodes are counted.
        """

    @abstractmethod
    def insert(self, token_ids: TokenIds, pages: Pages, salt: str = "") -> Match:
        """Give the pages of a prefix to the cache.

        Args:
            token_ids: tokens of the prefix, a whole number of pages.
            pages: pages of the tokens' keys and values.
            salt: salt of the prefix.

        Returns:
            The cached prefix. If the cache already had a page for the same tokens, the result holds that
            page, and the caller still owns the page that it passed.
        """

    @abstractmethod
    def lock(self, node: CacheNode) -> None:
        """Protect a node and the nodes above it from eviction."""

    @abstractmethod
    def unlock(self, node: CacheNode) -> None:
        """Undo one `lock`."""

    @abstractmethod
    def evict(self, count: int) -> int:
        """Free at least `count` pages, or all unlocked ones if there are fewer; return the number freed."""

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
        """Number of pages that pins lock; they stay locked even if no request runs."""


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

    def num_awaited(self, subscription: Subscription, rank: int) -> int:
        """Return 0: the tokens that a leader computes will not be cached."""
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


def common_bytes(key: bytes, data: bytes, position: int, page_bytes: int) -> int:
    """Return how many leading bytes of `key`, in whole pages, equal `data` from `position` on."""
    size = min(len(key), len(data) - position)
    theirs = np.frombuffer(data, np.int32, size // TOKEN_BYTES, position)
    differ = np.frombuffer(key, np.int32, size // TOKEN_BYTES) != theirs
    index = int(differ.argmax())
    first = index * TOKEN_BYTES if differ[index] else size
    return first - first % page_bytes


def concatenate(path: list[Pages]) -> Pages:
    """Concatenate arrays of page numbers. A single array is returned as it is, without a copy."""
    if not path:
        return NO_PAGES
    return path[0] if len(path) == 1 else np.concatenate(path)
