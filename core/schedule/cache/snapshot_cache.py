"""The prefix cache of models whose layers keep states: a radix tree with snapshots of states at its nodes.

Keys and values can be reused up to any page, but a state belongs to one position. So a sequence starts from
the deepest snapshot within its match, and computes the rest.

    root ─ "You are a …" ●─┬─ "What is …" ●    ● a snapshot of the states after the node's last token
                           └─ "Tell me …"      a match that ends here starts from the snapshot above

A snapshot leaves the cache with the last page of its node, or when another snapshot needs its slot
(`snapshot_slots`). A node without a snapshot stays: it shows where prompts diverge, so that a later sequence
can take a snapshot there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .isolated_rule import IsolatedRule
from .prefix_cache import CacheNode, Match, Subscription, TokenIds, concatenate
from .radix_cache import RadixCache
from .snapshot_slots import Snapshot, SnapshotSlots
from .subscriptions import Subscriptions

if TYPE_CHECKING:
    from .kv_pool import KVPool, Pages
    from .subscriptions import Group


class SnapshotCache(RadixCache):
    """A radix tree with snapshots. `match` and a subscription's length count only reusable tokens.

    Args:
        pool: pool to which evicted pages return.
        slots: slots for snapshots.
        rule: rule that ranks the leaves; None: leaves are ranked by last use.
    """

    def __init__(self, pool: KVPool, slots: SnapshotSlots, rule: IsolatedRule | None = None) -> None:
        super().__init__(pool, rule)
        self.slots = slots
        self._parked = Subscriptions(pool.page_size, self._num_reusable)
        self._num_subscribed = 0

    def match(self, token_ids: TokenIds, salt: str = "") -> Match:
        """Return the longest prefix whose keys, values and states are cached."""
        node, path, _ = self._walk(self._whole_pages(token_ids), salt)
        while path and node.snapshot is None:
            path.pop()
            assert node.parent is not None
            node = node.parent
        return Match(node, concatenate(path))

    def match_length(self, token_ids: TokenIds, salt: str = "") -> int:
        """Return the number of tokens that `match` would find. Neither counts as a use nor splits an edge."""
        node: CacheNode | None = self.roots.get(salt)
        data, position, found = self._whole_pages(token_ids), 0, 0
        while node is not None:
            child = node.children.get(data[position : position + self._page_bytes])
            if child is None or not data.startswith(child.key, position):
                break
            position += len(child.key)
            node = child
            if node.snapshot is not None:
                found = node.snapshot.num_tokens
        return found

    def cached_length(self, token_ids: TokenIds, salt: str = "") -> int:
        """Return how many tokens have cached keys and values. Does not count as a use."""
        return super().match_length(token_ids, salt)

    def subscribe(self, token_ids: TokenIds, salt: str, index: int) -> Subscription:
        """Start to track how much of a prompt can be reused."""
        subscription = super().subscribe(token_ids, salt, index)
        assert subscription.group is not None
        subscription.num_tokens = self._num_reusable(subscription.group)
        self._num_subscribed += 1
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop tracking a subscribed prompt, and unlock what `keep` locked for it."""
        self._num_subscribed -= 1
        super().unsubscribe(subscription)

    def keep(self, token_ids: TokenIds, salt: str) -> Subscription:
        """Lock a prefix until `unsubscribe`; its subscription counts all tokens whose pages are cached.

        The deepest snapshot of the prefix is not evicted to make room for another snapshot.
        """
        subscription = super().keep(token_ids, salt)
        assert subscription.group is not None
        subscription.num_tokens = subscription.group.num_tokens
        return subscription

    def leader(self, subscription: Subscription, rank: int) -> tuple[Subscription, int] | None:
        """Return the leader that computes most of a subscription's next tokens; None if there is none.

        Also returns the position up to which the two prompts are the same, in whole pages.
        """
        return self._parked.leader(subscription, rank)

    def kept_lengths(self, token_ids: TokenIds, salt: str) -> list[int]:
        """Return the lengths of the pinned prefixes of these tokens."""
        return [
            len(kept.token_ids)
            for kept in self._kept
            if kept.salt == salt
            and len(kept.token_ids) <= len(token_ids)
            and np.array_equal(kept.token_ids, token_ids[: len(kept.token_ids)])
        ]

    def reserve_slot(self) -> int | None:
        """Reserve a slot for a new snapshot. If no slot is free, evict another snapshot.

        Returns:
            The slot; None if all snapshots are held or pinned.
        """
        if not self.slots.num_free:
            pinned = {found for kept in self._kept if (found := self._deepest(kept)) is not None}
            victim = self.slots.next_victim(pinned)
            if victim is None:
                return None
            self.slots.count_eviction(victim)
            self.drop(victim)
        return self.slots.reserve()

    def num_saved(self, node: CacheNode, num_tokens: int) -> int:
        """Return how many tokens a snapshot at the end of a node saves: those since the nearest snapshot above.

        Args:
            num_tokens: number of tokens from the root to the end of the node.
        """
        above = snapshot_above(node if node.snapshot is None else node.parent)
        return num_tokens - (0 if above is None else above.num_tokens)

    def attach(self, token_ids: TokenIds, salt: str, slot: int) -> None:
        """Add a snapshot of the states after these tokens; a reserved slot holds the snapshot.

        Frees the slot if the pages of the tokens are no longer cached, or a snapshot exists already.

        Args:
            token_ids: tokens of the prefix, a whole number of pages.
        """
        data = self._whole_pages(token_ids)
        if self.cached_length(token_ids, salt) < len(token_ids):
            self.slots.free(slot)
            return
        node, _, _ = self._walk(data, salt)
        if node.snapshot is not None:
            self.slots.free(slot)
        else:
            self.attach_to(node, len(token_ids), slot)

    def attach_to(self, node: CacheNode, num_tokens: int, slot: int) -> None:
        """Add a snapshot, in a reserved slot, to a node without one: the states at the end of the node."""
        assert node.snapshot is None
        num_saved = self.num_saved(node, num_tokens)
        node.snapshot = Snapshot(slot, num_tokens, node)
        self.slots.keep(node.snapshot, num_saved)
        self._stir(node)

    def count_use(self, snapshot: Snapshot) -> None:
        """Count a sequence that starts from a snapshot."""
        if snapshot.is_valid:
            self.slots.count_use(snapshot, self.num_saved(snapshot.node, snapshot.num_tokens))

    def drop(self, snapshot: Snapshot) -> None:
        """Remove a snapshot from its node, and free its slot."""
        snapshot.node.snapshot = None
        self.slots.remove(snapshot)
        self._stir(snapshot.node)

    def check_snapshots(self) -> None:
        """Assert that each slot is free or holds a node's snapshot, and that sequences hold no snapshots."""
        assert self.slots.num_free + self.slots.num_kept == self.slots.count, "a slot for a snapshot leaked"
        found = [node.snapshot for node in self.nodes() if node.snapshot is not None]
        assert set(found) == set(self.slots), "a snapshot is not where its slot says"
        assert not any(each.num_holds for each in found), "a snapshot is still held"

    def _num_reusable(self, group: Group) -> int:
        """Return how many tokens the members of a group can reuse."""
        snapshot = snapshot_above(group.node)
        return 0 if snapshot is None else snapshot.num_tokens

    def _deepest(self, kept: Subscription) -> Snapshot | None:
        assert kept.group is not None
        return snapshot_above(kept.group.node)

    def _stir(self, node: CacheNode) -> None:
        """Record that the snapshot of a node was added or removed, for subscriptions at the node or below."""
        if not self._num_subscribed:
            return
        stack = [node]
        while stack:
            each = stack.pop()
            self._parked.stir(each)
            stack.extend(child for child in each.children.values() if child.snapshot is None)

    def _shorten(self, leaf: CacheNode, count: int) -> Pages:
        if leaf.snapshot is not None:
            self.drop(leaf.snapshot)
        return super()._shorten(leaf, count)

    def _unlink(self, leaf: CacheNode) -> CacheNode:
        if leaf.snapshot is not None:
            self.drop(leaf.snapshot)
        return super()._unlink(leaf)


def snapshot_above(node: CacheNode | None) -> Snapshot | None:
    """Return the snapshot of a node, or of the nearest node above with a snapshot; None if there is none."""
    while node is not None and node.snapshot is None:
        node = node.parent
    return None if node is None else node.snapshot
