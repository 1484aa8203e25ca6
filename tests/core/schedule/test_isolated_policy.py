"""A policy that fails costs no request: the guard tells it once, and goes on by arrival."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from llmfw.core.base.errors import ComponentError, ConfigError, UnknownComponentError
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.interfaces.policy import Figures, Ordering, Places, Running, SchedulePolicy, Waiting
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry, Registry
from llmfw.core.schedule.isolated_policy import IsolatedPolicy, load_policy
from llmfw.core.testing.policy_load import PolicyLoad
from llmfw.core.testing.policy_views import make_figures, make_running, make_waiting
from llmfw.plugins.policies.fcfs import FCFS
from llmfw.plugins.policies.priority import Priority

WAITING = make_waiting(4, arrival=[3, 1, 2, 0])
RUNNING = make_running(3, num_output=[5, 1, 3])
BY_ARRIVAL = [3, 1, 2, 0]


class Says(SchedulePolicy):
    """Answers what it was told to."""

    def __init__(self, order: Any = None, retracted: Any = None, gives: Any = None) -> None:
        super().__init__(SchedulePolicy.Options())
        self.answers = order, retracted, gives
        self.num_asked = 0

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return self.answer(0, waiting)

    def retraction_order(self, running: Running, figures: Figures) -> Places:
        return self.answer(1, running)

    def give_way(self, waiting: Waiting, place: int, running: Running, figures: Figures) -> Places:
        return self.answer(2, waiting)

    def answer(self, which: int, seen: Any) -> Any:
        self.num_asked += 1
        answer = self.answers[which]
        return answer(seen) if callable(answer) else answer


def guarded(policy: SchedulePolicy) -> IsolatedPolicy:
    return IsolatedPolicy(policy, "'house' (llmfw-house 1.2)", "says")


def sorts_in_place(waiting: Waiting) -> Ordering:
    waiting.arrival.sort()
    return Ordering(waiting.arrival)


def sets_a_column(waiting: Any) -> Ordering:
    waiting.arrival = np.arange(4)
    return Ordering(waiting.arrival)


WRONG: dict[str, tuple[Any, str]] = {
    "raises": (lambda waiting: 1 // 0, "ZeroDivisionError: "),
    "nothing": (None, "returned a NoneType, not an Ordering"),
    "places alone": (np.arange(4), "returned an array of int64 in 1 dimensions, not an Ordering"),
    "drops": (Ordering(np.arange(3)), "returned 3 places for 4 requests"),
    "repeats": (Ordering([0, 1, 2, 2]), "returned the place 2 2 times"),
    "invents": (Ordering(np.arange(1, 5)), "returned the place 4 for 4 requests"),
    "negative": (Ordering(np.array([0, 1, 2, -1])), "returned the place -1 for 4 requests"),
    "huge": (
        Ordering(np.array([0, 1, 2, 2**64 - 1], np.uint64)),
        "returned the place 18446744073709551615 for",
    ),
    "floats": (Ordering(np.arange(4.0)), "returned an array of float64 in 1 dimensions, not whole numbers"),
    "list of floats": (Ordering([0.0, 1.0, 2.0, 3.0]), "returned a list of a float, not whole numbers"),
    "booleans": (Ordering(np.ones(4, bool)), "returned an array of bool"),
    "two dimensions": (Ordering(np.arange(4)[None]), "returned an array of int64 in 2 dimensions"),
    "ragged": (Ordering([[0], [1, 2, 3]]), "ValueError: "),
    "sorts in place": (sorts_in_place, "ValueError: .*read-only"),
    "sets a column": (sets_a_column, "FrozenInstanceError: "),
    "holds too many": (Ordering(np.arange(4), 5), "holds 5 of 4 requests"),
    "holds less than none": (Ordering(np.arange(4), -1), "holds -1 of 4 requests"),
    "holds a part": (Ordering(np.arange(4), 0.5), "holds 0.5 requests, not a whole number"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_invalid_order_falls_back_to_arrival(wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once, and the policy is not asked again."""
    answer, reason = WRONG[wrong]
    policy = Says(answer)
    guard = guarded(policy)
    assert [guard.order(WAITING, make_figures()).places.tolist() for _ in range(3)] == [BY_ARRIVAL] * 3
    assert policy.num_asked == 1
    [record] = caplog.records
    assert "'says' of plugin 'house' (llmfw-house 1.2) failed" in record.message
    assert record.exc_info
    assert guard.failure is not None
    assert re.search(reason, guard.failure)
    assert guard.failure in record.message


@pytest.mark.parametrize("places", [[2, 0, 1, 3], np.array([2, 0, 1, 3], np.uint8), (2, 0, 1, 3)])
def test_any_integers_are_valid_places(places: Any) -> None:
    guard = guarded(Says(Ordering(places, np.int32(2))))
    order = guard.order(WAITING, make_figures())
    assert (order.places.tolist(), order.num_held, guard.failure) == ([2, 0, 1, 3], 2, None)
    assert order.places.dtype == np.intp


@pytest.mark.parametrize("places", [[], np.empty(0), np.empty(0, np.intp)])
def test_an_empty_order_is_valid(places: Any) -> None:
    guard = guarded(Says(Ordering(places)))
    assert guard.order(make_waiting(0), make_figures()).places.tolist() == []
    assert guard.failure is None


@pytest.mark.parametrize(
    "answer", [[0, 1], [0, 1, 1], [1, 2, 3], [0.5, 1.5, 2.5], None, lambda running: 1 // 0]
)
def test_an_invalid_retraction_order_is_replaced(answer: Any) -> None:
    guard = guarded(Says(retracted=answer))
    assert guard.retraction_order(RUNNING, make_figures()).tolist() == [1, 2, 0]
    assert guard.failure is not None


@pytest.mark.parametrize("answer", [[0, 0], [3], [-1], [0.5], None, lambda waiting: 1 // 0])
def test_an_invalid_give_way_answer_retracts_none(answer: Any) -> None:
    guard = guarded(Says(gives=answer))
    assert guard.give_way(WAITING, 0, RUNNING, make_figures()).tolist() == []
    assert guard.failure is not None


def test_one_failure_disables_all_three_methods() -> None:
    policy = Says(order=None, retracted=[0, 1, 2], gives=[0])
    guard = guarded(policy)
    guard.order(WAITING, make_figures())
    assert guard.retraction_order(RUNNING, make_figures()).tolist() == [1, 2, 0]
    assert guard.give_way(WAITING, 0, RUNNING, make_figures()).tolist() == []
    assert policy.num_asked == 1


def test_valid_answers_pass_unchanged() -> None:
    guard = guarded(Says(Ordering([1, 0, 2, 3], 1), [2, 0, 1], [2]))
    assert guard.order(WAITING, make_figures()).num_held == 1
    assert guard.retraction_order(RUNNING, make_figures()).tolist() == [2, 0, 1]
    assert guard.give_way(WAITING, 0, RUNNING, make_figures()).tolist() == [2]
    assert guard.failure is None


@pytest.mark.parametrize("kind", [FCFS, Priority])
def test_give_way_is_asked_only_if_overridden(kind: type[SchedulePolicy]) -> None:
    policy = kind(kind.Options())
    guard = guarded(policy)
    assert guard.preempts is policy.preempts is (kind is Priority)
    guard._asked.failure = "it did not answer"
    assert guard.preempts is False


def test_the_policy_cannot_write_scheduler_columns() -> None:
    arrival = np.array([3, 1, 2, 0])
    own = {name: getattr(WAITING, name) for name in Waiting.__slots__} | {"arrival": arrival}
    guard = guarded(Says(sorts_in_place))
    assert guard.order(Waiting(**own), make_figures()).places.tolist() == BY_ARRIVAL
    assert arrival.tolist() == [3, 1, 2, 0]
    assert arrival.flags.writeable
    assert "read-only" in str(guard.failure)


@pytest.mark.parametrize("method", ["order", "retraction_order", "give_way"])
def test_a_policy_failing_midway_loses_no_request(method: str) -> None:
    class Tires(Priority):
        num_left = 5

    def tired(self: Tires, *seen: Any) -> Any:
        self.num_left -= 1
        return getattr(Priority, method)(self, *seen) if self.num_left else None

    setattr(Tires, method, tired)
    guard = guarded(Tires(Priority.Options()))
    load = PolicyLoad(guard, seed=1)
    load.run(60)
    assert "NoneType" in str(guard.failure)
    assert load.given == load.asked
    assert set(load.ends.values()) == {1}


def test_an_interrupt_is_no_failure() -> None:
    def interrupted(waiting: Waiting) -> Ordering:
        raise KeyboardInterrupt

    guard = guarded(Says(interrupted))
    with pytest.raises(KeyboardInterrupt):
        guard.order(WAITING, make_figures())
    assert guard.failure is None


def test_load_policy_finds_name_options_and_plugin() -> None:
    registry = load_plugins().registry
    guard = load_policy(registry, "policies/lpm", {"policy.max_overtaken": "7", "attention.x": "1"})
    assert guard.name == "policies/lpm"
    assert guard.order(WAITING, make_figures()).places.tolist() == BY_ARRIVAL
    assert guard.failure is None


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("lmp", {}, UnknownComponentError),
        ("lpm", {"policy.max_overtaken": "-1"}, ConfigError),
        ("lpm", {"policy.max_overtaken": "often"}, ConfigError),
        ("fcfs", {"policy.max_overtaken": "1"}, ConfigError),
    ],
)
def test_a_wrong_policy_name_or_option_is_refused(
    name: str, options: dict[str, str], error: type[ConfigError]
) -> None:
    with pytest.raises(error, match=r"lpm|fcfs"):
        load_policy(load_plugins().registry, name, options)


class Unbuildable(SchedulePolicy):
    def __init__(self, options: Any) -> None:
        raise OSError("no such table")

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        raise NotImplementedError


def test_an_unbuildable_policy_names_its_plugin() -> None:
    path = f"{__name__}:Unbuildable"
    entry = Entry("policy", "table", path, plugin="house", distribution="llmfw-house", version="1.2")
    with pytest.raises(ComponentError, match=r"'table' of plugin 'house'.*OSError: no such table"):
        load_policy(Registry([entry]), "table", {})


def test_a_policy_changes_only_copies_of_requests() -> None:
    request = Request(
        id="a",
        prompt=[1],
        sampling=SamplingParams(logit_bias={3: -1.0}),
        fields={"deadline_ms": 5, "tags": ["x"]},
    )

    def changes(waiting: Waiting) -> Ordering:
        seen = waiting.request(0)
        assert seen == request
        seen.sampling.logit_bias[3] = 100.0
        seen.fields["deadline_ms"] = 1
        seen.fields["tags"].append("y")
        return Ordering(np.arange(1))

    waiting = replace(make_waiting(1), request=lambda _: request)
    guard = guarded(Says(changes))
    assert guard.order(waiting, make_figures()).places.tolist() == [0]
    assert guard.failure is None
    assert request.sampling.logit_bias == {3: -1.0}
    assert request.fields == {"deadline_ms": 5, "tags": ["x"]}
