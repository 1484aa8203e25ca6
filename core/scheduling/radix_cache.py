"""A radix tree over token prefixes, with least-recently-used eviction (Zheng et al., 2024, SGLang).

Edges are runs of whole pages. Tokens are compared as bytes: a run that matches whole, the common case, costs one
memcmp. The tree does not know who uses it: only how many locks a node has.

    root ─ "You are a …" ─┬─ "What is …"   leaf, locked by a running sequence
                          └─ "Tell me …"   leaf, not locked: evicted when its turn comes, from its end

A node's `last_use` is never older than its children's, since every use of a child goes through it. So eviction
only ever looks at leaves: they stand in a heap by last use. An entry is corrected when it comes to the top and not
before, so using a node costs nothing there.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from .prefix_cache import NO_PAGES, CacheNode, Match, PrefixCache, TokenIds

if TYPE_CHECKING:
    from .kv_pool import KVPool, Pages

TOKEN_BYTES = 4


class RadixCache(PrefixCache):
    """A tree of cached prefixes.

    Args:
        pool: to which evicted pages go back. Its page size is the tree's.
    """

    def __init__(self, pool: KVPool) -> None:
        super().__init__()
        self._pool = pool
        self._page_bytes = pool.page_size * TOKEN_BYTES
        self._roots = {"": CacheNode(b"", NO_PAGES, None)}  # by salt
        self._clock = 0
        self._num_pages = 0
        self._num_locked_pages = 0
        self._leaves: list[tuple[int, int, CacheNode]] = []  # heap: last use, tie-break, node
        self._num_listed = 0

    @property
    def num_pages(self) -> int:
        """Pages owned."""
        return self._num_pages

    @property
    def num_evictable_pages(self) -> int:
        """Pages owned and not locked."""
        return self._num_pages - self._num_locked_pages

    def match(self, token_ids: TokenIds, salt: str = "") -> Match:
        """Return the longest cached prefix, in whole pages. Splits the edge that it ends in."""
        node, path, _ = self._walk(self._whole_pages(token_ids), salt)
        return Match(node, _concatenate(path))

    def match_length(self, token_ids: TokenIds, salt: str = "") -> int:
        """Return how many tokens `match` would find. Changes nothing."""
        data = self._whole_pages(token_ids)
        node, position = self._root(salt), 0
        while position < len(data):
            child = node.children.get(data[position : position + self._page_bytes])
            if child is None:
                break
            common = self._common_bytes(child.key, data, position)
            position += common
            if common < len(child.key):
                break
            node = child
        return position // TOKEN_BYTES

    def insert(self, token_ids: TokenIds, pages: Pages, salt: str = "") -> Match:
        """Give the pages of a prefix to the cache; see `PrefixCache.insert`."""
        data = self._whole_pages(token_ids)
        assert len(data) == len(pages) * self._page_bytes, "insert takes whole pages"
        node, path, position = self._walk(data, salt)
        if position < len(data):
            rest = pages[position // self._page_bytes :].copy()
            leaf = CacheNode(data[position:], rest, node, self._clock)
            node.children[data[position : position + self._page_bytes]] = leaf
            self._num_pages += len(rest)
            self._list_if_evictable(leaf)
            node = leaf
            path.append(rest)
        return Match(node, _concatenate(path))

    def lock(self, node: CacheNode) -> None:
        """Keep a node, and what is above it, from eviction."""
        while node.parent is not None:
            if node.locks == 0:
                self._num_locked_pages += len(node.pages)
            node.locks += 1
            node = node.parent

    def unlock(self, node: CacheNode) -> None:
        """Undo one `lock`."""
        while node.parent is not None:
            assert node.locks > 0, "a cache node was unlocked more often than locked"
            node.locks -= 1
            if node.locks == 0:
                self._num_locked_pages -= len(node.pages)
                self._list_if_evictable(node)
            node = node.parent

    def evict(self, count: int) -> int:
        """Free pages of the least recently used leaves, from their ends, until `count` are free."""
        freed = 0
        while freed < count and self._leaves:
            last_use, _, leaf = heapq.heappop(self._leaves)
            leaf.is_listed = False
            if leaf.locks or leaf.children:
                continue  # it is listed again when its lock or its last child goes
            if last_use != leaf.last_use:
                self._list_if_evictable(leaf)
                continue
            freed += self._shorten(leaf, count - freed)
        return freed

    def nodes(self) -> list[CacheNode]:
        """Return all nodes but the root, parents first."""
        found = list(self._roots.values())
        for node in found:
            found.extend(node.children.values())
        return found[len(self._roots) :]

    def _root(self, salt: str) -> CacheNode:
        root = self._roots.get(salt)
        if root is None:
            root = self._roots[salt] = CacheNode(b"", NO_PAGES, None)
        return root

    def _whole_pages(self, token_ids: TokenIds) -> bytes:
        size = len(token_ids) - len(token_ids) % self._pool.page_size
        return token_ids[:size].tobytes()

    def _walk(self, data: bytes, salt: str) -> tuple[CacheNode, list[Pages], int]:
        """Go down as far as `data` agrees, as a use; return the last node, the pages, and how many bytes agreed."""
        self._clock += 1
        node, position = self._root(salt), 0
        path: list[Pages] = []
        while position < len(data):
            child = node.children.get(data[position : position + self._page_bytes])
            if child is None:
                break
            common = self._common_bytes(child.key, data, position)
            if common < len(child.key):
                child = self._split(child, common)
            child.last_use = self._clock
            path.append(child.pages)
            position += common
            node = child
        return node, path, position

    def _common_bytes(self, key: bytes, data: bytes, position: int) -> int:
        """Return how many bytes of `key` agree with `data` from `position` on, in whole pages."""
        size = len(key)
        if data[position : position + size] == key:
            return size
        size = min(size, len(data) - position)
        theirs = np.frombuffer(data, np.int32, size // TOKEN_BYTES, position)
        differ = np.frombuffer(key, np.int32, size // TOKEN_BYTES) != theirs
        first = int(differ.argmax()) * TOKEN_BYTES if differ.any() else size
        return first - first % self._page_bytes

    def _split(self, node: CacheNode, at: int) -> CacheNode:
        """Cut a node's edge after `at` bytes; return the new upper part. Locks of the node hold both parts."""
        parent = node.parent
        assert parent is not None
        num_upper = at // self._page_bytes
        upper = CacheNode(node.key[:at], node.pages[:num_upper].copy(), parent, node.last_use)
        upper.locks = node.locks
        parent.children[upper.key[: self._page_bytes]] = upper
        node.key, node.pages, node.parent = node.key[at:], node.pages[num_upper:].copy(), upper
        upper.children[node.key[: self._page_bytes]] = node
        return upper

    def _shorten(self, leaf: CacheNode, count: int) -> int:
        """Free up to `count` pages from a leaf's end; an empty leaf goes. Return how many were freed."""
        count = min(count, len(leaf.pages))
        keep = len(leaf.pages) - count
        self._pool.free(leaf.pages[keep:])
        self._num_pages -= count
        if keep:
            leaf.key, leaf.pages = leaf.key[: keep * self._page_bytes], leaf.pages[:keep].copy()
            self._list_if_evictable(leaf)
            return count
        parent = leaf.parent
        assert parent is not None
        del parent.children[leaf.key[: self._page_bytes]]
        leaf.parent = None
        self._list_if_evictable(parent)
        return count

    def _list_if_evictable(self, node: CacheNode) -> None:
        if node.parent is None or node.locks or node.children or node.is_listed:
            return
        node.is_listed = True
        self._num_listed += 1
        heapq.heappush(self._leaves, (node.last_use, self._num_listed, node))


def _concatenate(path: list[Pages]) -> Pages:
    if not path:
        return NO_PAGES
    return path[0] if len(path) == 1 else np.concatenate(path)
