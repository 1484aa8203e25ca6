"""The order in which waiting requests are admitted, and who is retracted."""

from __future__ import annotations

import pytest

from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.testing.policy_views import make_figures, make_running, make_waiting


def policy(name: str, **options: str) -> SchedulePolicy:
    entry = load_plugins().registry.find("policy", name)
    return entry.load()(entry.build_options({f"policy.{key}": text for key, text in options.items()}))


def order(name: str, num: int, options: dict[str, str] | None = None, **columns: list[float]) -> list[int]:
    asked = policy(name, **options or {})
    return asked.order(make_waiting(num, **columns), make_figures()).places.tolist()


def gives_way(gap: str, urgency: int, **running: list[int]) -> list[int]:
    waiting = make_waiting(2, priority=[0, urgency])
    seen = make_running(len(running["priority"]), **running)
    return policy("priority", preemption_gap=gap).give_way(waiting, 1, seen, make_figures()).tolist()


def test_fcfs_admits_by_arrival():
    assert order("fcfs", 3, arrival=[2, 1, 3], priority=[9, 0, 0], num_cached=[0, 0, 8]) == [1, 0, 2]


def test_lpm_admits_the_longest_cached_prefix_first():
    assert order("lpm", 3, num_cached=[1, 8, 2]) == [1, 2, 0]


def test_lpm_admits_equal_prefixes_by_arrival():
    assert order("lpm", 3, arrival=[2, 1, 3]) == [1, 0, 2]


def test_priority_admits_larger_priorities_first_then_by_arrival():
    assert order("priority", 4, priority=[-1, 0, 0, 7], arrival=[1, 4, 2, 3]) == [3, 2, 1, 0]


def test_the_lowest_priority_gives_way_first():
    """Among equals, the request with the least output."""
    running = {"priority": [1, 0, 0, 2, 3], "num_output": [0, 9, 4, 0, 0]}
    assert gives_way("1", 2, **running) == [2, 1, 0]


@pytest.mark.parametrize(("gap", "found"), [("1", [0, 1, 2]), ("2", [0, 1]), ("3", [0]), ("9", [])])
def test_only_gaps_of_the_option_give_way(gap, found):
    assert gives_way(gap, 3, priority=[0, 1, 2, 3, 4]) == found


@pytest.mark.parametrize(("gap", "asked"), [("0", False), ("1", True)])
def test_without_a_gap_no_request_gives_way(gap, asked):
    assert policy("priority", preemption_gap=gap).preempts is asked


def test_a_full_pool_retracts_low_priorities_first():
    running = make_running(3, priority=[1, 0, 0], num_output=[0, 5, 9])
    assert policy("priority").retraction_order(running, make_figures()).tolist() == [1, 2, 0]


@pytest.mark.parametrize("name", ["fcfs", "lpm", "sjf", "fair"])
def test_other_policies_never_give_way(name):
    seen = make_waiting(1, priority=[9]), 0, make_running(2), make_figures()
    assert policy(name).give_way(*seen).tolist() == []
    assert not policy(name).preempts


def test_sjf_admits_the_fewest_remaining_tokens_first():
    assert order("sjf", 3, num_tokens=[50, 90, 20], num_cached=[0, 80, 0]) == [1, 2, 0]


@pytest.mark.parametrize(("weight", "found"), [("0", [0, 1]), ("0.5", [0, 1]), ("1", [1, 0]), ("2", [1, 0])])
def test_sjf_weighs_the_output_by_its_option(weight, found):
    assert order("sjf", 2, {"output_weight": weight}, num_tokens=[10, 60], num_to_come=[90, 10]) == found


def test_sjf_treats_unlimited_outputs_as_equal():
    assert order("sjf", 2, num_tokens=[60, 10], num_to_come=[8000, 9000]) == [1, 0]
