"""Records which prefixes enter and leave a radix cache, as hashes of whole blocks (see `prefix_hash`).

The cache reports each change of its nodes to the journal. Splitting a node does not change the cached
prefixes. Only engines that share requests with other engines have a journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .prefix_cache import TOKEN_BYTES, CacheNode, Root
from .prefix_hash import block_size, hash_of_salt, prefix_hashes


class JournalEntry(NamedTuple):
    """Hashes of the prefixes that were added to the cache or removed from it."""

    added: list[int]
    removed: list[int]


class CacheJournal:
    """Collects the changes of a cache until `take` returns them. Omits changes that cancel each other out.

    Args:
        page_size: number of tokens of a page of the cache.
        nodes: function that returns all nodes of the cache except the roots.

    Attributes:
        block: number of tokens of a block.
    """

    def __init__(self, page_size: int, nodes: Callable[[], Sequence[CacheNode]]) -> None:
        self.block = block_size(page_size)
        self._nodes = nodes
        self._added: set[int] = set()
        self._removed: set[int] = set()

    def add(self, node: CacheNode) -> None:
        """Record a new leaf. Its parent and its tokens must already be set."""
        parent = node.parent
        assert parent is not None
        if isinstance(parent, Root):
            node.start, node.start_hash = 0, hash_of_salt(parent.salt)
        else:
            node.start, node.start_hash = parent.start + parent.num_tokens, _end_hash(parent)
        for each in self._hashes(node, 0):
            if each in self._removed:
                self._removed.discard(each)
            else:
                self._added.add(each)

    def split(self, upper: CacheNode, lower: CacheNode) -> None:
        """Record that the first tokens of a node have moved to a new node above it."""
        upper.start, upper.start_hash = lower.start, lower.start_hash
        lower.start, lower.start_hash = upper.start + upper.num_tokens, _end_hash(upper)

    def cut(self, node: CacheNode, num_kept: int) -> None:
        """Record that a node is about to lose the tokens after its first `num_kept` ones."""
        for each in self._hashes(node, num_kept):
            if each in self._added:
                self._added.discard(each)
            else:
                self._removed.add(each)

    def take(self) -> JournalEntry | None:
        """Return the changes since the last call; None if there are none."""
        if not (self._added or self._removed):
            return None
        entry = JournalEntry(list(self._added), list(self._removed))
        self._added.clear()
        self._removed.clear()
        return entry

    def take_all(self) -> list[int]:
        """Return the hashes of all cached prefixes, and discard the changes collected up to now."""
        self._added.clear()
        self._removed.clear()
        return [each for node in self._nodes() for each in self._hashes(node, 0)]

    def _hashes(self, node: CacheNode, first: int) -> list[int]:
        """Return the hashes of the prefixes that end at the end of a block.

        The ends of these blocks are in this node, after its first `first` tokens.
        """
        start = node.start + first
        place = node.start + node.num_tokens  # the end of the node
        end = start + self.block - start % self.block  # the first end of a block after `start`
        if end > place:
            return []
        found: list[int] = prefix_hashes(_token_ids(node), node.start, node.start_hash)[
            end - node.start - 1 :: self.block
        ].tolist()
        return found


def _end_hash(node: CacheNode) -> int:
    return int(prefix_hashes(_token_ids(node), node.start, node.start_hash)[-1])


def _token_ids(node: CacheNode) -> np.ndarray:
    return np.frombuffer(node.key, np.int32, len(node.key) // TOKEN_BYTES)
