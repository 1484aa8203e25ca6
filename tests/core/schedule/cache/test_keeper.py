"""Pins, view and flush of the prefix cache."""

from __future__ import annotations

import random

import pytest

from llmfw.core.base.control import PinPrefix
from llmfw.core.base.errors import NotFoundError, RequestError
from llmfw.core.schedule.cache.keeper import CacheKeeper
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.prefix_cache import NoPrefixCache
from llmfw.core.schedule.cache.radix_cache import RadixCache
from llmfw.core.schedule.cache.snapshot_cache import SnapshotCache
from llmfw.core.schedule.cache.snapshot_slots import SnapshotSlots

from ..driver import Driver
from .test_subscriptions import fill, ids


class House:
    """A pool, a cache and its keeper, with a clock that stands until it is moved."""

    def __init__(self, num_pages: int = 100, page_size: int = 1, most: int = 50) -> None:
        self.time = 1000.0
        self.pool = KVPool(num_pages, page_size)
        self.cache = RadixCache(self.pool)
        self.keeper = CacheKeeper(self.cache, self.pool, most, lambda: self.time)

    def pin(self, tokens: list[int], ttl_s: float = 60.0, salt: str = "") -> str:
        return self.keeper.pin(PinPrefix(tokens, ttl_s, salt)).id


def test_pins_keep_half_of_the_snapshots_at_most() -> None:
    pool = KVPool(100, 1)
    cache = SnapshotCache(pool, SnapshotSlots(0, 5))
    keeper = CacheKeeper(cache, pool, 50, lambda: 0.0)
    fill(cache, pool, [7, 8, 9])
    slot = cache.reserve_slot()
    assert slot is not None
    cache.attach(ids([7, 8, 9]), "", slot)
    assert (keeper.view().num_snapshots, keeper.view().max_snapshots) == (1, 5)
    for first in (1, 2):
        keeper.pin(PinPrefix([first, 5], 60.0))
    with pytest.raises(
        RequestError, match=r"2 prefixes are pinned, .* of which pins may keep 2; unpin another"
    ):
        keeper.pin(PinPrefix([3, 5], 60.0))


def test_a_pinned_prefix_stays_until_it_expires() -> None:
    house = House()
    fill(house.cache, house.pool, list(range(20)))
    house.pin(list(range(15)), ttl_s=60)
    assert house.cache.evict(100) == 5
    house.time += 59.9
    house.keeper.tick()
    assert house.cache.evict(100) == 0
    house.time += 0.1
    house.keeper.tick()
    assert house.cache.evict(100) == 15


def test_a_pin_reports_cached_tokens_and_expiry() -> None:
    house = House(page_size=4)
    fill(house.cache, house.pool, [1] * 8)
    info = house.keeper.pin(PinPrefix([1] * 19, ttl_s=60))
    assert (info.num_tokens, info.num_cached, info.expires_in_s) == (16, 8, 60)
    fill(house.cache, house.pool, [1] * 16)
    house.time += 10
    (info,) = house.keeper.view(0).pins
    assert (info.num_cached, info.expires_in_s) == (16, 50)


def test_a_pin_keeps_later_computed_pages() -> None:
    house = House()
    house.pin([1, 2, 3])
    fill(house.cache, house.pool, [1, 2, 3, 4])
    assert house.cache.evict(100) == 1


def test_unpinning_frees_and_a_second_time_fails() -> None:
    house = House()
    fill(house.cache, house.pool, [1, 2, 3])
    pin = house.pin([1, 2, 3])
    info = house.keeper.unpin(pin)
    assert (info.num_cached, info.expires_in_s) == (3, 0)
    assert house.cache.evict(100) == 3
    with pytest.raises(NotFoundError, match=pin):
        house.keeper.unpin(pin)


def test_two_pins_keep_a_prefix_until_both_end() -> None:
    house = House()
    fill(house.cache, house.pool, [1, 2, 3])
    first, second = house.pin([1, 2, 3]), house.pin([1, 2])
    assert house.keeper.view().num_pinned == 3
    house.keeper.unpin(first)
    assert house.cache.evict(100) == 1
    house.keeper.unpin(second)
    assert house.cache.evict(100) == 2


@pytest.mark.parametrize(
    ("tokens", "ttl_s", "param", "message"),
    [
        ([1], 60, "token_ids", "shorter than a page, which has 2"),
        ([1, 2, 3, -4], 60, "token_ids", "has -4"),
        ([1, 2, 3, 2**31], 60, "token_ids", "not a token id"),
        ([1] * 52, 60, "token_ids", "50 that pins may keep 40 are left"),
        ([1, 2], 0, "ttl_s", "is 0; it has to be above 0"),
        ([1, 2], float("nan"), "ttl_s", "is nan"),
        ([1, 2], 1e9, "ttl_s", "which is a year"),
    ],
)
def test_invalid_pins_are_refused_without_effect(
    tokens: list[int], ttl_s: float, param: str, message: str
) -> None:
    house = House(page_size=2)
    house.pin([7] * 10)
    with pytest.raises(RequestError, match=message) as raised:
        house.pin(tokens, ttl_s)
    assert raised.value.param == param
    assert len(house.keeper.view().pins) == 1


def test_give_up_drops_the_soonest_nonempty_pin(caplog) -> None:
    house = House()
    fill(house.cache, house.pool, [1] * 10)
    fill(house.cache, house.pool, [2] * 10)
    house.pin([3] * 10, ttl_s=1)
    late, soon = house.pin([1] * 10, ttl_s=20), house.pin([2] * 10, ttl_s=10)
    assert house.keeper.give_up()
    assert soon in caplog.text
    assert house.cache.evict(100) == 10
    assert house.keeper.give_up()
    assert late in caplog.text
    assert not house.keeper.give_up()
    assert len(house.keeper.view().pins) == 1


@pytest.mark.parametrize("ask", ["pin", "unpin", "view", "flush"])
def test_a_disabled_cache_refuses_commands(ask: str) -> None:
    keeper = CacheKeeper(NoPrefixCache(), KVPool(4, 1), 4, lambda: 0.0)
    keeper.tick()
    arguments = {"pin": [PinPrefix([1], 1)], "unpin": ["pin-1"], "view": [], "flush": []}[ask]
    with pytest.raises(RequestError, match="--disable-radix-cache"):
        getattr(keeper, ask)(*arguments)
    assert not keeper.give_up()


def test_a_flush_keeps_locked_and_pinned_prefixes() -> None:
    house = House()
    for first in (1, 2, 3):
        fill(house.cache, house.pool, [first] * 10)
    house.cache.lock(house.cache.match(ids([1] * 10)).node)
    house.pin([2] * 10)
    view = house.keeper.flush()
    assert (view.num_tokens, view.num_locked, view.num_pinned, view.num_evicted) == (20, 20, 10, 10)
    assert house.cache.match_length(ids([3] * 10)) == 0


def test_the_view_reports_users_of_a_prefix() -> None:
    house = House()
    system = list(range(30))
    for i in (100, 101):
        fill(house.cache, house.pool, [*system, i, i, i], "acme")
    node, pages = house.cache.match(ids([*system, 100]), "acme")
    house.cache.lock(node)
    house.cache.count(node, len(pages), 33)
    house.pin([*system, 101], salt="acme")
    house.time += 5
    first = house.keeper.view(1).prefixes[0]
    assert (first.num_tokens, first.own_tokens, first.num_below) == (30, 30, 6)
    assert (first.hits, first.users, first.pinned, first.salt) == (1, 1, True, "acme")
    assert (first.first_ids, first.last_ids) == (system, system)


def test_a_prefix_shows_its_last_use() -> None:
    house = House()
    house.keeper.tick()
    fill(house.cache, house.pool, [1] * 10)
    fill(house.cache, house.pool, [2] * 9)
    house.time += 5
    house.keeper.tick()
    house.cache.match(ids([2] * 9))
    house.time += 2
    assert [each.age_s for each in house.keeper.view().prefixes] == [7, 2]


def test_hits_are_counted_once_across_two_lookups() -> None:
    house = House()
    fill(house.cache, house.pool, [1] * 6)
    first, pages = house.cache.match(ids([1] * 9))
    house.cache.count(first, len(pages), 9)
    fill(house.cache, house.pool, [1] * 8)
    node, _ = house.cache.match(ids([1] * 9))
    house.cache.count(node, 2, 0, above=first)
    view = house.keeper.view()
    assert (view.num_asked, view.num_hit) == (9, 8)
    assert [each.hits for each in view.prefixes] == [1]


def test_the_view_sorts_prefixes_by_shared_tokens() -> None:
    """Both halves of a split prefix are listed as one."""
    house = House(1000)
    for i in range(5):
        fill(house.cache, house.pool, [1] * 20 + [i] * 10)
    fill(house.cache, house.pool, [2] * 60)
    house.cache.subscribe(ids([2] * 30 + [3]), "", 0)  # cuts it in two
    told = [each.num_tokens for each in house.keeper.view().prefixes]
    assert told == [21, 60, 30, 30, 30, 30, 30] or told == [20, 60, 30, 30, 30, 30, 30]


def test_the_view_s_counts_match_the_tree() -> None:
    rng = random.Random(0)
    house = House(2000, most=2000)
    for i in range(60):
        tokens = [rng.randrange(2) for _ in range(12)]
        fill(house.cache, house.pool, tokens)
        if i % 3 == 0:
            house.pin(tokens[: rng.randrange(1, 12)])
        if i % 4 == 0:
            house.cache.lock(house.cache.match(ids(tokens)).node)
    view = house.keeper.view(1000)
    assert all(each.users >= 0 for each in view.prefixes)
    assert sum(each.own_tokens for each in view.prefixes) <= view.num_tokens
    ranked = [each.num_tokens for each in view.prefixes]
    assert len(ranked) <= view.num_nodes
    assert view.num_pinned <= view.num_locked <= view.num_tokens


def test_the_scheduler_counts_hits_and_keeps_pins() -> None:
    driver = Driver()
    cache = driver.pages.cache
    assert isinstance(cache, RadixCache)
    keeper = CacheKeeper(cache, driver.pages.pool, 100, lambda: 0.0)
    prompt = list(range(1, 20))
    keeper.pin(PinPrefix(prompt, 60))
    for i in range(3):
        driver.add(f"{i}", prompt, 2)
        driver.finish()
    view = keeper.flush()
    assert view.num_hit == sum(driver.cached.values()) == 36
    assert view.num_asked == 3 * 18
    assert view.num_tokens == view.num_pinned == 19
