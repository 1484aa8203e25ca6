"""Requests that come together with one new prefix compute it once."""

from __future__ import annotations

import pytest

from llmfw.core.schedule.prefix_leaders import LEAST_FOLLOWED

from .driver import Driver

LONG = [i % 20 + 1 for i in range(100)]


def computed(driver: Driver) -> int:
    """Return how many prompt tokens are computed until all have ended."""
    total = 0
    while driver.scheduler.has_work or driver.launched:
        total += sum(p.count for p in driver.step().prefills)
    driver.finish()
    driver.check_outputs()
    return total


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("budget", [16, 1000])
def test_a_new_shared_prefix_is_computed_once(budget: int, overlap: bool) -> None:
    driver = Driver(budget=budget, num_tokens=1000, overlap=overlap)
    for i in range(8):
        driver.add(str(i), [*LONG, i + 1], 2)
    twice = (
        LEAST_FOLLOWED if budget < len(LONG) else 0
    )  # what is left of a step may be spent on a prefix's last tokens
    assert len(LONG) + 8 <= computed(driver) <= len(LONG) + 8 + twice


def test_followers_keep_their_place_in_the_order() -> None:
    driver = Driver(budget=1000, num_tokens=1000)
    for i in range(3):
        driver.add(str(i), [*LONG, i + 1], 2)
    driver.step()
    assert [seq.id for seq in driver.scheduler.live.running] == ["0", "1", "2"]


def test_short_prefixes_are_not_followed() -> None:
    driver = Driver(num_tokens=1000)
    for i in range(3):
        driver.add(str(i), [1] * 8 + [i + 2], 2)
    assert len(driver.step().parts) == 3


@pytest.mark.parametrize("overlap", [False, True])
def test_nothing_is_followed_without_a_cache(overlap: bool) -> None:
    """Nobody waits for what will not be cached: all prompts are in the first step."""
    driver = Driver(budget=1000, num_tokens=1000, overlap=overlap, cached=False)
    for i in range(4):
        driver.add(str(i), [*LONG, i + 1], 2)
    assert len(driver.step().parts) == 4
    assert computed(driver) == 0


def test_prefixes_of_different_salts_are_computed_separately() -> None:
    driver = Driver(budget=1000, num_tokens=1000)
    for i in range(4):
        driver.add(str(i), [*LONG, i + 1], 2, cache_salt=f"{i % 2}")
    assert computed(driver) == 2 * len(LONG) + 4


def test_a_follower_takes_over_an_aborted_leader() -> None:
    driver = Driver(budget=16, num_tokens=1000)
    for i in range(3):
        driver.add(str(i), [*LONG, i + 1], 2)
    driver.step()
    driver.step()
    driver.abort("0")
    assert computed(driver) <= len(LONG) - 32 + 2 + LEAST_FOLLOWED


def test_live_requests_do_not_follow_deferrable_ones() -> None:
    driver = Driver(budget=16, num_tokens=1000)
    driver.add("batch", [*LONG, 1], 2, deferrable=True)
    driver.step()
    driver.add("live", [*LONG, 2], 2)
    assert [(p.seq.id, p.count) for p in driver.step().parts] == [("live", 16)]
    driver.finish()
    driver.check_outputs()


@pytest.mark.parametrize("max_running", [1, 2, 3])
def test_followers_of_a_paused_leader_finish(max_running: int) -> None:
    driver = Driver(budget=16, num_tokens=1000, max_running=3, share=0.4)
    for i in range(3):
        driver.add(f"batch {i}", [*LONG, i + 1], 2, deferrable=True)
    driver.step()
    for i in range(max_running):
        driver.add(f"live {i}", [*LONG, i + 5], 30)
    driver.finish()
    driver.check_outputs()
