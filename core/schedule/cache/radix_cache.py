"""A radix tree over token prefixes (Zheng et al., 2024, SGLang), with a selectable eviction rule.

Edges are runs of whole pages. The tree compares tokens as bytes: a run that matches in full, the common case,
costs one memcmp. For each node, the tree counts locks; it does not record their holders.

    root ─ "You are a …" ─┬─ "What is …"   leaf, locked by a running sequence
                          └─ "Tell me …"   leaf, not locked: may be evicted, last pages first

Each salt has its own root, so prompts with different salts share nothing.

The eviction rule ranks the leaves, and a heap orders them by rank (`eviction`). Only leaves are evicted. A
use of a node also counts as a use of all nodes above it, so a parent is never due before its children.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .cache_journal import CacheJournal
from .eviction_heap import EvictionHeap
from .isolated_rule import IsolatedRule
from .prefix_cache import (
    TOKEN_BYTES,
    CacheNode,
    Match,
    PrefixCache,
    Root,
    Subscription,
    TokenIds,
    common_bytes,
    concatenate,
)
from .subscriptions import Subscriptions

if TYPE_CHECKING:
    from .kv_pool import KVPool, Pages
    from .subscriptions import Group

LONG = 1024
"""Before a leaf of more than 2 * LONG pages loses fewer than LONG, its last LONG pages become a separate
leaf, because removing pages copies the tokens of all remaining pages of a leaf."""

MAX_EXPIRED = 256
"""Maximum number of leaves that one call of `expire` examines."""


class RadixCache(PrefixCache):
    """A prefix cache in the form of a radix tree.

    Args:
        pool: pool to which evicted pages return. The tree uses the pool's page size.
        rule: rule that ranks the leaves; the leaf with the smallest rank is evicted first. None: last use.

    Attributes:
        roots: root node of each salt.
        now: current time in seconds, set by the caller; recorded as `used_at` of the nodes used.
        num_asked: tokens that requests looked up since start.
        num_hit: tokens that requests found since start.
    """

    def __init__(self, pool: KVPool, rule: IsolatedRule | None = None) -> None:
        super().__init__()
        self.roots: dict[str, Root] = {"": Root("")}
        self.now = 0.0
        self.num_asked = self.num_hit = 0
        self._pool = pool
        self._page_bytes = pool.page_size * TOKEN_BYTES
        self._clock = 0
        self._floor = 0.0
        self._num_pages = 0
        self._num_locked_pages = 0
        self._leaves = EvictionHeap(rule or IsolatedRule())
        self._parked = Subscriptions(pool.page_size)
        self._kept: dict[Subscription, None] = {}
        self._journal: CacheJournal | None = None

    def start_journal(self) -> CacheJournal:
        """Record all further changes in a journal; return the journal. Call this while the cache is empty."""
        self._journal = CacheJournal(self._pool.page_size, self.nodes)
        return self._journal

    @property
    def num_pages(self) -> int:
        """Number of pages that the cache owns."""
        return self._num_pages

    @property
    def num_evictable_pages(self) -> int:
        """Number of pages that the cache owns and that are not locked."""
        return self._num_pages - self._num_locked_pages

    @property
    def num_kept_pages(self) -> int:
        """Number of pages of the prefixes locked by `keep`; pages shared by several prefixes count once."""
        seen: set[CacheNode] = set()
        for subscription in self._kept:
            assert subscription.group is not None
            node: CacheNode | None = subscription.group.node
            while node is not None and node not in seen:
                seen.add(node)
                node = node.parent
        return sum(len(node.pages) for node in seen)

    def match(self, token_ids: TokenIds, salt: str = "") -> Match:
        """Return the longest cached prefix, in whole pages. If it ends inside an edge, the edge is split."""
        node, path, _ = self._walk(self._whole_pages(token_ids), salt)
        return Match(node, concatenate(path))

    def match_length(self, token_ids: TokenIds, salt: str = "") -> int:
        """Return how many tokens `match` would find. Neither counts as a use nor splits an edge."""
        node: CacheNode | None = self.roots.get(salt)
        if node is None:
            return 0
        data, position = self._whole_pages(token_ids), 0
        while position < len(data):
            child = node.children.get(data[position : position + self._page_bytes])
            if child is None:
                break
            if not data.startswith(child.key, position):
                position += common_bytes(child.key, data, position, self._page_bytes)
                break
            position += len(child.key)
            node = child
        return position // TOKEN_BYTES

    def count(self, node: CacheNode, num_found: int, num_asked: int, above: CacheNode | None = None) -> None:
        """Update the hit statistics for an admitted request; see `PrefixCache.count`."""
        self.num_asked += num_asked
        self.num_hit += num_found
        while (parent := node.parent) is not None and node is not above:
            node.hits += 1
            node = parent

    def insert(self, token_ids: TokenIds, pages: Pages, salt: str = "") -> Match:
        """Give the pages of a prefix to the cache; see `PrefixCache.insert`."""
        data = self._whole_pages(token_ids)
        assert len(data) == len(pages) * self._page_bytes, "insert takes whole pages"
        node, path, position = self._walk(data, salt)
        if position < len(data):
            rest = pages[position // self._page_bytes :].copy()
            leaf = self._add_leaf(node, data[position:], rest, salt)
            path.append(rest)
            node = leaf
        return Match(node, concatenate(path))

    def lock(self, node: CacheNode) -> None:
        """Protect a node and the nodes above it from eviction."""
        while (parent := node.parent) is not None:
            if node.locks == 0:
                self._num_locked_pages += len(node.pages)
            node.locks += 1
            node = parent

    def unlock(self, node: CacheNode) -> None:
        """Undo one `lock`."""
        while (parent := node.parent) is not None:
            node.locks -= 1
            if node.locks <= 0:
                assert node.locks == 0, "a cache node was unlocked more often than locked"
                self._num_locked_pages -= len(node.pages)
                self._leaves.add(node)
            node = parent

    def evict(self, count: int) -> int:
        """Evict up to `count` unlocked pages, in the eviction rule's order; return the number freed."""
        freed: list[Pages] = []
        missing = count
        self._leaves.begin()
        while missing > 0 and (leaf := self._leaves.next_leaf()) is not None:
            missing = self._take_chain(leaf, missing, freed)
        if freed:
            self._free(concatenate(freed))
        return count - missing

    @property
    def next_expiry(self) -> float:
        """Time at which to call `expire`, by the clock of `now`; infinity: no leaf expires."""
        return math.inf if self._leaves.expiry is None else self._leaves.expiry.next_at

    def expire(self) -> None:
        """Remove up to MAX_EXPIRED unlocked leaves that have expired."""
        expiry = self._leaves.expiry
        for _ in range(MAX_EXPIRED):
            if expiry is None or expiry.next_at > self.now:
                return
            leaf = expiry.take(self.now)
            if leaf is not None:
                self._free(leaf.pages)
                parent = self._unlink(leaf)
                self._leaves.note_gone()
                self._leaves.add(parent)
                self._forget_if_empty(parent)

    def nodes(self) -> list[CacheNode]:
        """Return all nodes except the roots, parents first."""
        found: list[CacheNode] = list(self.roots.values())
        for node in found:
            found.extend(node.children.values())
        return found[len(self.roots) :]

    def subscribe(self, token_ids: TokenIds, salt: str, index: int) -> Subscription:
        """Start to track how much of a prompt is cached; see `PrefixCache.subscribe`."""
        subscription = Subscription(token_ids, salt, index)
        root = self.roots.get(salt)
        if root is None:
            root = self.roots[salt] = Root(salt)
        subscription.num_tokens = self._park(subscription, root, 0).num_tokens
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop tracking a subscribed prompt, and unlock what `keep` locked for it."""
        node = self._parked.remove(subscription)
        if subscription.keeps:
            del self._kept[subscription]
            self.unlock(node)
        self._forget_if_empty(node)

    def keep(self, token_ids: TokenIds, salt: str) -> Subscription:
        """Lock a prefix until `unsubscribe`, including parts that are cached later; return its subscription.

        The subscription's `num_tokens` is always up to date, and `take_moved` does not return the
        subscription.
        """
        subscription = self.subscribe(token_ids, salt, -1)
        subscription.keeps = True
        self._kept[subscription] = None
        assert subscription.group is not None
        self.lock(subscription.group.node)
        return subscription

    def lead(self, subscription: Subscription, rank: int) -> None:
        """Mark a subscription as a leader until `unsubscribe`; see `PrefixCache.lead`."""
        subscription.leads = rank
        assert subscription.group is not None, "a forgotten subscription cannot lead"
        subscription.group.leaders[subscription] = None

    def take_moved(self) -> list[Subscription]:
        """Return the subscriptions whose `num_tokens` changed since the last call.

        Takes time linear in the number of subscriptions that may have changed.
        """
        return self._parked.take_moved()

    def num_awaited(self, subscription: Subscription, rank: int) -> int:
        """Return how many uncached tokens a subscription shares with a leader of at least this rank."""
        return self._parked.num_awaited(subscription, rank)

    def _whole_pages(self, token_ids: TokenIds) -> bytes:
        data = token_ids.tobytes()
        extra = len(data) % self._page_bytes
        return data[:-extra] if extra else data

    def _walk(self, data: bytes, salt: str) -> tuple[CacheNode, list[Pages], int]:
        """Descend while `data` matches, and record a use of each node.

        Returns:
            The last node, the pages of each node on the path, and the number of bytes matched.
        """
        self._clock = clock = self._clock + 1
        now, floor, page_bytes = self.now, self._floor, self._page_bytes
        node: CacheNode = self.roots.get(salt) or Root(salt)
        position, size = 0, len(data)
        path: list[Pages] = []
        while position < size:
            child = node.children.get(data[position : position + page_bytes])
            if child is None:
                break
            if not data.startswith(child.key, position):
                child = self._split(child, common_bytes(child.key, data, position, self._page_bytes))
            child.last_use = clock
            child.used_at = now
            child.floor = floor
            path.append(child.pages)
            position += len(child.key)
            node = child
        return node, path, position

    def _add_leaf(self, node: CacheNode, key: bytes, pages: Pages, salt: str) -> CacheNode:
        """Add a child to `node`, and move the subscriptions that match the new child down to it.

        No other child of `node` has the same first page.
        """
        leaf = CacheNode(key, pages, node, self._clock)
        leaf.created_at = leaf.used_at = self.now
        leaf.floor = self._floor
        if isinstance(node, Root):
            self.roots[salt] = node
        first = key[: self._page_bytes]
        node.children[first] = leaf
        self._num_pages += len(pages)
        if self._journal is not None:
            self._journal.add(leaf)
        self._leaves.add(leaf)
        if node.groups is not None:
            group = self._parked.take_waiting(node, first)
            if group is not None:
                for subscription in group.members:
                    self._walk_on(subscription, node, group.num_tokens)
        return leaf

    def _walk_on(self, subscription: Subscription, node: CacheNode, num_tokens: int) -> None:
        """Move a subscription from `node` down to the node at which its match ends now."""
        group = self._park(subscription, node, num_tokens)
        if subscription.keeps:
            self.lock(group.node)
            self.unlock(node)
            subscription.num_tokens = group.num_tokens
        else:
            self._parked.walked(subscription)

    def _park(self, subscription: Subscription, node: CacheNode, num_tokens: int) -> Group:
        """Park a subscription where its match ends, at `node` or below. Does not count as a use."""
        token_ids, page_size = subscription.token_ids, self._pool.page_size
        while child := node.children.get(token_ids[num_tokens : num_tokens + page_size].tobytes()):
            data = token_ids[num_tokens : num_tokens + len(child.key) // TOKEN_BYTES].tobytes()
            if data != child.key:
                child = self._split(child, common_bytes(child.key, data, 0, self._page_bytes))
            num_tokens += len(child.key) // TOKEN_BYTES
            node = child
        return self._parked.park(subscription, node, num_tokens)

    def _split(self, node: CacheNode, at: int) -> CacheNode:
        """Split a node's edge after `at` bytes; return the new upper node. Both nodes keep the locks."""
        parent = node.parent
        assert parent is not None
        num_upper = at // self._page_bytes
        upper = CacheNode(node.key[:at], node.pages[:num_upper].copy(), parent, node.last_use)
        upper.locks, upper.hits, upper.used_at, upper.floor = node.locks, node.hits, node.used_at, node.floor
        upper.created_at = node.created_at
        parent.children[upper.key[: self._page_bytes]] = upper
        node.key, node.pages, node.parent = node.key[at:], node.pages[num_upper:].copy(), upper
        upper.children[node.key[: self._page_bytes]] = node
        if self._journal is not None:
            self._journal.split(upper, node)
        return upper

    def _shorten(self, leaf: CacheNode, count: int) -> Pages:
        """Remove the last `count` pages of a leaf with more than `count` pages; return the removed pages."""
        if len(leaf.pages) > 2 * LONG and count < LONG:
            self._split(leaf, len(leaf.key) - LONG * self._page_bytes)
        keep = len(leaf.pages) - count
        at = keep * self._page_bytes
        if self._journal is not None:
            self._journal.cut(leaf, at // TOKEN_BYTES)
        lost, first = leaf.pages[keep:], leaf.key[at : at + self._page_bytes]
        leaf.key, leaf.pages = leaf.key[:at], leaf.pages[:keep]
        if leaf.groups is not None:
            self._parked.cut(leaf, leaf, count, first)
        return lost

    def _take_chain(self, first: CacheNode, missing: int, freed: list[Pages]) -> int:
        """Evict the leaf at the top of the heap, and then ancestors, until `missing` pages are freed.

        An ancestor is evicted if it has become an unlocked leaf with no larger rank. Appends the freed
        pages to `freed`; returns the number of pages still missing.
        """
        leaves, leaf = self._leaves, first
        rank = leaves.top_rank
        while len(leaf.pages) <= missing:
            freed.append(leaf.pages)
            missing -= len(leaf.pages)
            parent = self._unlink(leaf)
            self._floor = max(self._floor, rank)
            if parent.is_listed or not parent.is_evictable:
                leaves.pop()
                leaves.add(parent)
                self._forget_if_empty(parent)
                return missing
            leaf = parent
            if not missing or leaves.rank(leaf) > rank:
                leaves.replace(leaf)
                return missing
        freed.append(self._shorten(leaf, missing))
        if leaf is not first:
            leaves.replace(leaf)
        return 0

    def _unlink(self, leaf: CacheNode) -> CacheNode:
        """Remove a leaf from the tree; return its parent."""
        parent, first = leaf.parent, leaf.key[: self._page_bytes]
        assert parent is not None
        if self._journal is not None:
            self._journal.cut(leaf, 0)
        leaf.parent = None
        del parent.children[first]
        if leaf.groups is not None:
            self._parked.cut(leaf, parent, len(leaf.pages), first)
        return parent

    def _forget_if_empty(self, node: CacheNode) -> None:
        """Drop a salt's root if it has no children and no subscriptions."""
        if isinstance(node, Root) and node.salt and not node.children and node.groups is None:
            self.roots.pop(node.salt, None)

    def _free(self, pages: Pages) -> None:
        """Return evicted pages to the pool."""
        self._pool.free(pages)
        self._num_pages -= len(pages)
        self.num_evicted += len(pages) * self._pool.page_size
