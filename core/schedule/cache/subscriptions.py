"""Finds the subscribed prompts that a change of a radix tree affects, without visiting the others.

A subscription is parked at the node where its match ends, in the group of subscriptions with the same next
page:

    root ─ "You are a …" ─┬─ "What is …"    groups: {"the weather": [w1, w2], nothing: [w3]}
                          └─ "Tell me …"    groups: {}

Here w1 and w2 have the same next page, which is not cached, and w3 is cached in full. A new child of a node
affects one group: the group of the child's first page, whose members descend further. If a leaf loses its
last pages, all groups parked at it are affected: the first lost page becomes the next page of all their
subscriptions, so the groups merge. After the merge, the cost of shortening the leaf again does not depend on
the number of subscriptions. The subscriptions' `num_tokens` are updated only by `take_moved`.

This module reads nodes but does not change the tree; the cache traverses the tree and splits nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .prefix_cache import CacheNode, Subscription


class Group:
    """Subscriptions that are parked at the same node and have the same next, uncached page.

    Attributes:
        node: node at which the members' cached prefixes end.
        key: token ids of the members' next page, as bytes; empty if less than a whole page is left.
        num_tokens: number of cached tokens of each member.
        members: subscriptions in the group, in the order in which they were added.
        leaders: members whose next tokens are being computed, in the order in which they were added.
    """

    __slots__ = ("key", "leaders", "members", "node", "num_tokens")

    def __init__(self, node: CacheNode, key: bytes, num_tokens: int) -> None:
        self.node = node
        self.key = key
        self.num_tokens = num_tokens
        self.members: dict[Subscription, None] = {}
        self.leaders: dict[Subscription, None] = {}

    def absorb(self, other: Group) -> None:
        """Add the members of another group to this one."""
        self.members.update(other.members)
        self.leaders.update(other.leaders)
        for subscription in other.members:
            subscription.group = self


class Subscriptions:
    """All groups of a tree, and a record of the members whose cached length may have changed.

    Args:
        page_size: tokens in a page.
        num_reusable: function that returns how many tokens the members of a group can reuse; None: members
            reuse all cached tokens.
    """

    def __init__(self, page_size: int, num_reusable: Callable[[Group], int] | None = None) -> None:
        self._page_size = page_size
        self._num_reusable = num_reusable or _num_cached
        self._walked: dict[Subscription, None] = {}  # subscriptions that may have moved
        self._stirred: dict[Group, None] = {}  # groups whose members may all have moved

    def park(self, subscription: Subscription, node: CacheNode, num_tokens: int) -> Group:
        """Park a subscription at the node where its match ends; return its new group."""
        page = subscription.token_ids[num_tokens : num_tokens + self._page_size]
        key = page.tobytes() if len(page) == self._page_size else b""
        if node.groups is None:
            node.groups = {}
        group = node.groups.get(key)
        if group is None:
            group = node.groups[key] = Group(node, key, num_tokens)
        group.members[subscription] = None
        if subscription.leads:
            group.leaders[subscription] = None
        subscription.group = group
        return group

    def remove(self, subscription: Subscription) -> CacheNode:
        """Remove a subscription from its group; return the node at which it was parked."""
        group = subscription.group
        assert group is not None, "a subscription was forgotten twice"
        subscription.group = None
        self._walked.pop(subscription, None)
        del group.members[subscription]
        group.leaders.pop(subscription, None)
        if not group.members:
            self._stirred.pop(group, None)
            self._drop(group)
        return group.node

    def take_waiting(self, node: CacheNode, key: bytes) -> Group | None:
        """Remove and return the group whose next page is `key`, the first page of a new child of `node`.

        The caller must then park each member at the node where its match ends now.
        """
        group = None if node.groups is None else node.groups.get(key)
        if group is not None:
            self._stirred.pop(group, None)
            self._drop(group)
        return group

    def walked(self, subscription: Subscription) -> None:
        """Record that a subscription was parked at another node, so that `take_moved` checks it."""
        self._walked[subscription] = None

    def cut(self, leaf: CacheNode, node: CacheNode, num_pages: int, key: bytes) -> None:
        """Record that a leaf has lost its last pages.

        Args:
            leaf: the shortened leaf.
            node: node at which the matches of the leaf's subscriptions end now: the leaf, or the leaf's
                parent if no page is left.
            num_pages: number of lost pages.
            key: token ids of the first lost page, as bytes.
        """
        if not leaf.groups:
            return
        groups = list(leaf.groups.values())
        leaf.groups = None
        group = groups[0] if len(groups) == 1 else max(groups, key=lambda each: len(each.members))
        for other in groups:
            if other is not group:
                group.absorb(other)
                self._stirred.pop(other, None)
        group.node, group.key = node, key
        group.num_tokens -= num_pages * self._page_size
        if node.groups is None:
            node.groups = {}
        node.groups[key] = group
        self._stirred[group] = None

    def take_moved(self) -> list[Subscription]:
        """Update `num_tokens` of all members; return the subscriptions that changed since the last call."""
        moved = []
        for group in self._stirred:
            num_tokens = self._num_reusable(group)
            for subscription in group.members:
                if subscription.num_tokens != num_tokens and not subscription.keeps:
                    subscription.num_tokens = num_tokens
                    moved.append(subscription)
        for subscription in self._walked:
            assert subscription.group is not None
            num_tokens = self._num_reusable(subscription.group)
            if subscription.num_tokens != num_tokens:
                subscription.num_tokens = num_tokens
                moved.append(subscription)
        self._stirred.clear()
        self._walked.clear()
        return moved

    def num_awaited(self, subscription: Subscription, rank: int) -> int:
        """Return how many uncached tokens a subscription shares with a leader of at least this rank.

        Counts whole pages. Only leaders in the same group matter, because other leaders do not share the next
        page.
        """
        found = self.leader(subscription, rank)
        assert subscription.group is not None
        return 0 if found is None else found[1] - subscription.group.num_tokens

    def leader(self, subscription: Subscription, rank: int) -> tuple[Subscription, int] | None:
        """Return the leader of at least this rank that shares most of a subscription's tokens.

        Also returns the number of shared tokens, in whole pages, counted from the first token on. Returns
        None if no leader shares an uncached page.
        """
        group = subscription.group
        assert group is not None
        if not group.key:  # the members have less than a page left
            return None
        best, start, most = None, group.num_tokens, 0
        for leader in group.leaders:
            if leader is not subscription and leader.leads >= rank:
                num = _num_common(subscription.token_ids[start:], leader.token_ids[start:])
                if num - num % self._page_size > most:
                    best, most = leader, num - num % self._page_size
        return None if best is None else (best, start + most)

    def stir(self, node: CacheNode) -> None:
        """Record that the number of reusable tokens may have changed for the subscriptions at a node."""
        for group in (node.groups or {}).values():
            self._stirred[group] = None

    def _drop(self, group: Group) -> None:
        groups = group.node.groups
        assert groups is not None
        del groups[group.key]
        if not groups:
            group.node.groups = None


def _num_cached(group: Group) -> int:
    return group.num_tokens


def _num_common(a: np.ndarray, b: np.ndarray) -> int:
    """Return the length of the common prefix of two arrays."""
    size = min(len(a), len(b))
    if not size:
        return 0
    differ = a[:size] != b[:size]
    first = int(differ.argmax())
    return first if differ[first] else size
