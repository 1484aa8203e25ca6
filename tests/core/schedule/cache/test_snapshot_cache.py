"""A cache with snapshots reuses a prefix up to the deepest snapshot, and no further."""

from __future__ import annotations

import random

import numpy as np
import pytest

from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.prefix_cache import CacheNode, Subscription
from llmfw.core.schedule.cache.snapshot_cache import SnapshotCache
from llmfw.core.schedule.cache.snapshot_slots import Snapshot, SnapshotSlots

from ....length import of_length
from .rules import RULES, make_rule
from .test_subscriptions import SALTS, fill, ids

ONE_TO_NINE = list(range(1, 10))


class House:
    """A pool, a cache with snapshots, and their slots."""

    def __init__(
        self, num_pages: int = 40, page_size: int = 1, num_slots: int = 4, rule: str = "lru"
    ) -> None:
        self.pool = KVPool(num_pages, page_size)
        self.slots = SnapshotSlots(0, num_slots)
        self.cache = SnapshotCache(self.pool, self.slots, make_rule(rule))

    def snapshot(self, tokens: list[int], salt: str = "") -> None:
        """Keep a snapshot after these tokens, if their pages are cached."""
        slot = self.cache.reserve_slot()
        if slot is not None:
            self.cache.attach(ids(tokens), salt, slot)


def test_a_match_ends_at_the_deepest_snapshot() -> None:
    house = House()
    fill(house.cache, house.pool, ONE_TO_NINE)
    house.snapshot(ONE_TO_NINE[:3])
    house.snapshot(ONE_TO_NINE[:7])
    for length in range(10):
        expected = 7 if length >= 7 else 3 if length >= 3 else 0
        assert house.cache.match_length(ids(ONE_TO_NINE[:length])) == expected
        node, pages = house.cache.match(ids(ONE_TO_NINE[:length]))
        assert len(pages) == expected
        assert (0 if node.snapshot is None else node.snapshot.num_tokens) == expected
        assert house.cache.cached_length(ids(ONE_TO_NINE[:length])) == length


def test_a_node_without_a_snapshot_stays() -> None:
    house = House()
    fill(house.cache, house.pool, ONE_TO_NINE)
    house.snapshot(ONE_TO_NINE[:3])
    [kept] = house.slots
    house.cache.drop(kept)
    assert house.cache.match_length(ids(ONE_TO_NINE)) == 0
    assert house.cache.cached_length(ids(ONE_TO_NINE)) == 9


def test_a_snapshot_leaves_with_its_last_page() -> None:
    house = House()
    fill(house.cache, house.pool, ONE_TO_NINE)
    house.snapshot(ONE_TO_NINE)
    house.snapshot(ONE_TO_NINE[:3])
    assert house.cache.evict(1) == 1
    assert [each.num_tokens for each in house.slots] == [3]
    house.cache.evict(40)
    assert house.slots.num_free == 4


def test_a_second_snapshot_of_a_prefix_is_dropped() -> None:
    house = House()
    fill(house.cache, house.pool, ONE_TO_NINE)
    for tokens in (ONE_TO_NINE, ONE_TO_NINE, [7, 8]):  # the last is not cached
        house.snapshot(tokens)
    assert house.slots.num_kept == 1
    house.cache.check_snapshots()


def test_snapshots_of_different_salts_are_separate() -> None:
    house = House()
    for salt in ("a", "b"):
        fill(house.cache, house.pool, ONE_TO_NINE, salt)
    house.snapshot(ONE_TO_NINE, "a")
    assert [house.cache.match_length(ids(ONE_TO_NINE), salt) for salt in ("", "a", "b")] == [0, 9, 0]


def test_a_pin_protects_its_deepest_snapshot() -> None:
    house = House(num_slots=2)
    fill(house.cache, house.pool, ONE_TO_NINE)
    house.snapshot(ONE_TO_NINE[:2])
    house.snapshot(ONE_TO_NINE[:3])
    pin = house.cache.keep(ids(ONE_TO_NINE[:5]), "")
    assert pin.num_tokens == 5
    assert house.cache.kept_lengths(ids(ONE_TO_NINE), "") == [5]
    assert house.cache.kept_lengths(ids(ONE_TO_NINE[:4]), "") == []
    for length in (9, 8, 7):
        house.snapshot(ONE_TO_NINE[:length])
        assert house.cache.match_length(ids(ONE_TO_NINE[:5])) == 3
    house.cache.unsubscribe(pin)


class Operations:
    """A cache with snapshots, random operations on it, and a plain record of what it must hold.

    Args:
        rng: source of the operations.
        page_size: tokens in a page.
    """

    def __init__(self, rng: random.Random, page_size: int) -> None:
        self.rng, self.page_size = rng, page_size
        self.house = House(rng.choice([20, 60]), page_size, rng.choice([0, 1, 3, 8]), rng.choice(list(RULES)))
        self.cache = self.house.cache
        self.written: dict[int, tuple[str, bytes]] = {}  # what the state in each slot was computed from
        self.trunks = [[rng.randrange(2) for _ in range(8 * page_size)] for _ in range(3)]
        self.subscribed: dict[int, Subscription] = {}
        self.started: dict[int, CacheNode] = {}
        self.held: dict[int, Snapshot] = {}
        self.num_started = 0
        self.pinned: list[Subscription] = []

    def prompt(self) -> tuple[list[int], str]:
        trunk = self.rng.choice(self.trunks)
        tokens = trunk[: self.rng.randrange(len(trunk) + 1)]
        return tokens + [
            self.rng.randrange(2) for _ in range(self.rng.randrange(5 * self.page_size))
        ], self.rng.choice(SALTS)

    def act(self, index: int) -> None:
        rng, (tokens, salt) = self.rng, self.prompt()
        draw = rng.randrange(12)
        if draw < 2:
            fill(self.cache, self.house.pool, tokens, salt)
        elif draw < 5:
            self.take(tokens[: len(tokens) // self.page_size * self.page_size], salt)
        elif draw == 5:
            self.cache.evict(rng.randrange(1, 8))
        elif draw == 6:
            self.start(tokens, salt)
        elif draw == 7 and self.started:
            number = rng.choice(list(self.started))
            self.let_go(number)
            self.cache.unlock(self.started.pop(number))
        elif draw == 8 and self.started:
            self.let_go(rng.choice(list(self.started)))
        elif draw == 9 and self.subscribed:
            self.cache.unsubscribe(self.subscribed.pop(rng.choice(list(self.subscribed))))
        elif draw == 10:
            if self.pinned and rng.random() < 0.6:
                self.cache.unsubscribe(self.pinned.pop())
            else:
                self.pinned.append(self.cache.keep(ids(tokens), salt))
        else:
            self.subscribed[index] = self.cache.subscribe(ids(tokens), salt, index)

    def take(self, tokens: list[int], salt: str) -> None:
        """Write a snapshot of what is computed from these tokens, and give it to the cache."""
        slot = self.cache.reserve_slot() if tokens else None
        if slot is not None:
            assert not any(each.slot == slot for each in self.held.values()), "a held snapshot lost its slot"
            self.written[slot] = salt, ids(tokens).tobytes()
            self.cache.attach(ids(tokens), salt, slot)

    def start(self, tokens: list[int], salt: str) -> None:
        """Start a sequence: its state must have been computed from exactly the tokens of its pages."""
        node, pages = self.cache.match(ids(tokens), salt)
        self.cache.lock(node)
        self.num_started += 1
        self.started[self.num_started] = node
        if (snapshot := node.snapshot) is not None:
            assert len(pages) * self.page_size == snapshot.num_tokens
            assert self.written[snapshot.slot] == (salt, ids(tokens[: snapshot.num_tokens]).tobytes())
            self.cache.count_use(snapshot)
            snapshot.num_holds += 1
            self.held[self.num_started] = snapshot
        else:
            assert not len(pages)

    def let_go(self, number: int) -> None:
        """Let a started sequence copy its state, if it has not yet."""
        if number in self.held:
            self.held.pop(number).num_holds -= 1

    def check(self) -> None:
        moved = {each.index for each in self.cache.take_moved()}
        assert moved <= self.subscribed.keys()
        for subscription in self.subscribed.values():
            assert subscription.num_tokens == self.cache.match_length(
                subscription.token_ids, subscription.salt
            )
        for pin in self.pinned:
            assert pin.num_tokens == self.cache.cached_length(pin.token_ids, pin.salt)
        assert self.house.slots.num_free + self.house.slots.num_kept == self.house.slots.count
        assert sum(each.num_holds for each in self.house.slots) == len(self.held), (
            "a held snapshot was evicted"
        )


@pytest.mark.parametrize("page_size", [1, 4])
def test_random_operations_keep_states_apart(page_size: int) -> None:
    """No slot leaks, no sequence starts from a wrong state, and subscriptions tell what can be reused."""
    rng = random.Random(page_size)
    for _ in range(of_length(12, 500)):
        operations = Operations(rng, page_size)
        for index in range(400):
            operations.act(index)
            operations.check()
        for number in operations.started:
            operations.let_go(number)
        operations.cache.check_snapshots()


def test_a_changed_snapshot_moves_subscriptions_below() -> None:
    house = House()
    fill(house.cache, house.pool, ONE_TO_NINE)
    below = house.cache.subscribe(ids(ONE_TO_NINE), "", 1)
    other = house.cache.subscribe(ids([*ONE_TO_NINE[:2], 50]), "", 2)
    house.snapshot(ONE_TO_NINE[:3])
    assert house.cache.take_moved() == [below]
    assert (below.num_tokens, other.num_tokens) == (3, 0)
    house.snapshot(ONE_TO_NINE[:2])
    assert house.cache.take_moved() == [other]
    house.cache.drop(next(each for each in house.slots if each.num_tokens == 3))
    assert house.cache.take_moved() == [below]
    assert (below.num_tokens, other.num_tokens) == (2, 2)
    assert np.array_equal(below.token_ids, ids(ONE_TO_NINE))
