"""The order in which waiting requests are admitted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.plugins import load_plugins
from llmfw.core.policy import SchedulePolicy
from llmfw.core.testing.policy_views import make_figures, make_waiting

NAMES = ("fcfs", "lpm", "priority")


def policy(name: str) -> SchedulePolicy:
    entry = load_plugins().registry.find("policy", name)
    return entry.load()(entry.build_options({}))


def order(name: str, num: int, **columns: list[float]) -> list[int]:
    return policy(name).order(make_waiting(num, **columns), make_figures()).places.tolist()


@pytest.mark.parametrize("name", NAMES)
@given(cached=st.lists(st.integers(0, 9), max_size=20), data=st.data())
def test_every_place_comes_out_once_and_the_order_does_not_depend_on_that_of_the_columns(name, cached, data):
    num = len(cached)
    arrival = data.draw(st.permutations(range(num)))
    priority = data.draw(st.lists(st.integers(-1, 1), min_size=num, max_size=num))
    places = order(name, num, arrival=arrival, num_cached=cached, priority=priority)
    assert sorted(places) == list(range(num))
    mirrored = order(name, num, arrival=arrival[::-1], num_cached=cached[::-1], priority=priority[::-1])
    assert [num - 1 - place for place in mirrored] == places


def test_fcfs_admits_by_arrival():
    assert order("fcfs", 3, arrival=[2, 1, 3], priority=[9, 0, 0], num_cached=[0, 0, 8]) == [1, 0, 2]


def test_lpm_admits_the_longest_cached_prefix_first():
    assert order("lpm", 3, num_cached=[1, 8, 2]) == [1, 2, 0]


def test_lpm_admits_equal_prefixes_by_arrival():
    assert order("lpm", 3, arrival=[2, 1, 3]) == [1, 0, 2]


def test_priority_admits_larger_priorities_first_then_by_arrival():
    assert order("priority", 4, priority=[-1, 0, 0, 7], arrival=[1, 4, 2, 3]) == [3, 2, 1, 0]
