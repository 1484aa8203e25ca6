"""Describes the contents of a radix tree by its most shared prefixes."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from llmfw.core.base.control import PrefixInfo

from .prefix_cache import TOKEN_BYTES, CacheNode, Root
from .radix_cache import RadixCache

SHOWN_IDS = 64
"""Number of token ids to show from either end of a prefix."""


@dataclass(slots=True, eq=False)
class _Branch:
    """A node with statistics of the path to it and the subtree below it. Lengths are in bytes of keys.

    Attributes:
        depth: length of the prefix that ends at this node.
        below: total length of the nodes below this one.
        num_leaves: number of leaves below, 1 for a leaf.
        num_pins: number of pins that end at this node or below.
    """

    node: CacheNode
    parent: _Branch | None
    salt: str
    depth: int = 0
    below: int = 0
    num_leaves: int = 0
    num_pins: int = 0

    @property
    def shared(self) -> int:
        return self.depth * self.num_leaves

    @property
    def goes_on_alone(self) -> bool:
        """Whether the node's only child is used as often as the node; both then belong to one prefix."""
        children = self.node.children
        return len(children) == 1 and next(iter(children.values())).hits == self.node.hits


def largest_prefixes(cache: RadixCache, pinned: Collection[CacheNode], most: int) -> list[PrefixInfo]:
    """Return the most shared prefixes, in descending order.

    A prefix is ranked by its length times the number of leaves below it: the number of tokens that the leaves
    would need for this prefix without sharing. If a prefix has a single continuation that is used as often,
    only the continuation is returned.

    Args:
        cache: cache to describe.
        pinned: nodes at which pins end, once per pin.
        most: maximum number of prefixes to return.
    """
    branches = _branches(cache)
    by_node = {branch.node: branch for branch in branches}
    for node in pinned:
        if node in by_node:
            by_node[node].num_pins += 1
    for branch in reversed(branches):  # children first
        branch.num_leaves = branch.num_leaves or 1
        if branch.parent is not None:
            branch.parent.num_leaves += branch.num_leaves
            branch.parent.below += branch.below + len(branch.node.key)
            branch.parent.num_pins += branch.num_pins
    told = (branch for branch in branches if not branch.goes_on_alone)
    return [_info(branch, cache.now) for branch in heapq.nlargest(most, told, key=lambda each: each.shared)]


def _branches(cache: RadixCache) -> list[_Branch]:
    """Return a `_Branch` for each node except the roots, parents first."""
    found: list[_Branch] = []
    for root in cache.roots.values():
        found += [_branch(child, None, root.salt) for child in root.children.values()]
    for branch in found:
        found.extend(_branch(child, branch, branch.salt) for child in branch.node.children.values())
    return found


def _branch(node: CacheNode, parent: _Branch | None, salt: str) -> _Branch:
    return _Branch(node, parent, salt, len(node.key) + (0 if parent is None else parent.depth))


def _info(branch: _Branch, now: float) -> PrefixInfo:
    node = branch.node
    ids = _token_ids(node)
    return PrefixInfo(
        num_tokens=branch.depth // TOKEN_BYTES,
        own_tokens=len(node.key) // TOKEN_BYTES,
        num_below=branch.below // TOKEN_BYTES,
        hits=node.hits,
        age_s=max(0.0, now - node.used_at),
        users=node.locks - branch.num_pins,
        pinned=branch.num_pins > 0,
        salt=branch.salt,
        first_ids=ids[:SHOWN_IDS],
        last_ids=ids[-SHOWN_IDS:],
    )


def _token_ids(node: CacheNode | None) -> list[int]:
    """Return the tokens from the root to a node's end."""
    keys = []
    while node is not None and not isinstance(node, Root):
        keys.append(node.key)
        node = node.parent
    return np.frombuffer(b"".join(reversed(keys)), np.int32).tolist()  # type: ignore[no-any-return]
