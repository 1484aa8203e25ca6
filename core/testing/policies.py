"""Conformance tests of the `SchedulePolicy` interface."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from llmfw.core.interfaces.policy import Ordering, Running, SchedulePolicy, Waiting
from llmfw.core.schedule.isolated_policy import IsolatedPolicy, check_order, check_places

from .declared import declared
from .mixed_requests import mixed_running, mixed_waiting
from .policy_load import PolicyLoad
from .policy_views import (
    ColumnsT,
    columns_of,
    draw_running,
    draw_waiting,
    make_figures,
    make_running,
    make_waiting,
    rearranged,
    with_known_fields,
)

MANY = 5000
NUM_REPEATS = 400
DAY = 86_400.0
MAX_KEPT = 2_000
"""Blocks of memory that a policy may keep of 10,000 requests; one that keeps each has more than 10,000."""

NUM_REQUESTS = 60
MAX_RETRACTIONS = 2 * NUM_REQUESTS
"""If requests retract each other, each is retracted three to six times on average."""


class Draw:
    """Makes requests that set the request fields of a policy, and are asked for no other field.

    Args:
        fields: names of the request fields.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields

    def waiting(self, rng: np.random.Generator, num: int) -> Waiting:
        """Return `num` random waiting requests."""
        return with_known_fields(draw_waiting(rng, num, self._fields), self._fields)

    def running(self, rng: np.random.Generator, num: int) -> Running:
        """Return `num` random running requests."""
        return with_known_fields(draw_running(rng, num, self._fields), self._fields)

    def equal_waiting(self, num: int, **columns: Any) -> Waiting:
        """Return `num` waiting requests that are equal in all columns that are not given, and set no field."""
        return with_known_fields(make_waiting(num, **columns), self._fields)

    def equal_running(self, num: int, **columns: Any) -> Running:
        """Return `num` running requests like those of `equal_waiting`."""
        return with_known_fields(make_running(num, **columns), self._fields)


class SchedulePolicyTests:
    """Conformance tests of a scheduling policy.

    Derive from this class and override the fixture `policy` (and `max_sorts`, if the policy is slower).
    """

    @pytest.fixture
    def policy(self) -> SchedulePolicy:
        """Return the policy under test, built with its options."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture policy")

    @pytest.fixture
    def max_sorts(self) -> float:
        """Return the maximum time of `order` for 5,000 requests, in multiples of one `numpy.lexsort`."""
        return 20.0

    @pytest.fixture
    def reference(self) -> SchedulePolicy | None:
        """Return a simple policy that gives the expected answers, and may be slow; None: unknown."""
        return None

    @pytest.fixture
    def fields(self, policy: SchedulePolicy) -> Sequence[str]:
        """Return the names of the request fields that the policy reads. It must ask for no other."""
        return declared(policy, "fields", ())

    @pytest.fixture
    def draw(self, fields: Sequence[str]) -> Draw:
        """Return functions that make waiting and running requests, of which half set each of the fields."""
        return Draw(fields)

    @pytest.mark.parametrize("num", [1, 2, 5, 40, 150])
    def test_answers_equal_the_reference(
        self, policy: SchedulePolicy, reference: SchedulePolicy | None, fields: Sequence[str], num: int
    ) -> None:
        """Tests eight random queues, in which some values are equal."""
        if reference is None:
            pytest.skip(
                "the policy does not have the capability reference (a plain policy with the same answers)"
            )
        assert policy.preempts == reference.preempts, "preempts"
        for seed in range(8):
            rng = np.random.default_rng([num, seed])
            waiting = with_known_fields(mixed_waiting(rng, num, fields), fields)
            running = with_known_fields(mixed_running(rng, num, fields), fields)
            figures = make_figures(
                num_waiting=num, num_running=num, num_places=int(rng.choice([0, 1, 3, 100]))
            )
            found, expected = (each.order(waiting, figures) for each in (policy, reference))
            assert found.places.tolist() == expected.places.tolist(), f"order of {waiting}"
            assert found.num_held == expected.num_held, f"num_held of {waiting}"
            retracted, wanted = (
                each.retraction_order(running, figures).tolist() for each in (policy, reference)
            )
            assert retracted == wanted, f"retraction_order of {running}"
            for place in rng.integers(0, num, 5).tolist():
                gone, due = (
                    each.give_way(waiting, place, running, figures).tolist() for each in (policy, reference)
                )
                assert gone == due, f"give_way for request {place} of {waiting}: {running}"

    @pytest.mark.parametrize("num", [0, 1, 2, 3, 20, 300, MANY])
    @pytest.mark.parametrize("num_places", [0, 1, 100])
    def test_order_places_each_waiting_request_once(
        self, policy: SchedulePolicy, draw: Draw, num: int, num_places: int
    ) -> None:
        figures = make_figures(num_waiting=num, num_places=num_places)
        for waiting in (draw.waiting(np.random.default_rng(num), num), draw.equal_waiting(num)):
            order = check_order(policy.order(waiting, figures), num)
            assert sorted(order.places.tolist()) == list(range(num))

    @pytest.mark.parametrize("num", [1, 2, 3, 20, 300])
    def test_retraction_order_places_each_running_request_once(
        self, policy: SchedulePolicy, draw: Draw, num: int
    ) -> None:
        for running in (draw.running(np.random.default_rng(num), num), draw.equal_running(num)):
            found = policy.retraction_order(running, make_figures(num_running=num))
            assert sorted(check_places("retraction_order", found, num).tolist()) == list(range(num))

    @pytest.mark.parametrize("num", [1, 2, 3, 20, 300])
    def test_give_way_retracts_each_request_at_most_once(
        self, policy: SchedulePolicy, draw: Draw, num: int
    ) -> None:
        rng = np.random.default_rng(num)
        waiting, running = draw.waiting(rng, 2 * num), draw.running(rng, num)
        figures = make_figures(num_waiting=2 * num, num_running=num, num_places=0)
        for place in range(0, 2 * num, max(1, num // 10)):
            found = policy.give_way(waiting, place, running, figures)
            gone = check_places("give_way", found, num, all_of_them=False).tolist()
            assert sorted(set(gone)) == sorted(gone)

    @pytest.mark.parametrize("num", [3, 300])
    def test_the_policy_does_not_change_its_input(self, policy: SchedulePolicy, draw: Draw, num: int) -> None:
        rng, figures = np.random.default_rng(num), make_figures()
        waiting, running = writable(draw.waiting(rng, num)), writable(draw.running(rng, num))
        before = writable(waiting), writable(running)
        policy.order(waiting, figures)
        policy.retraction_order(running, figures)
        policy.give_way(waiting, 0, running, figures)
        assert listed(waiting) == listed(before[0])
        assert listed(running) == listed(before[1])

    @pytest.mark.parametrize("num", [2, 3, 20, 300])
    def test_the_same_input_gives_the_same_answer(self, policy: SchedulePolicy, draw: Draw, num: int) -> None:
        rng, figures = np.random.default_rng(num), make_figures()
        waiting, running = draw.waiting(rng, num), draw.running(rng, num)

        def answers() -> list[list[int]]:
            order = check_order(policy.order(waiting, figures), num)
            retracted = check_places("retraction_order", policy.retraction_order(running, figures), num)
            gone = policy.give_way(waiting, 0, running, figures)
            return [
                [*order.places.tolist(), order.num_held],
                retracted.tolist(),
                check_places("give_way", gone, num, all_of_them=False).tolist(),
            ]

        first = answers()
        policy.order(draw.waiting(rng, 7), figures)
        assert answers() == first
        if num == 20:  # calls each method hundreds of times, to find faults that only long runs have
            for repeat in range(NUM_REPEATS):
                assert answers() == first, f"another answer after {repeat} equal ones"

    @pytest.mark.parametrize("num", [2, 3, 20, 300])
    def test_ordering_does_not_depend_on_column_order(
        self, policy: SchedulePolicy, draw: Draw, num: int
    ) -> None:
        rng, figures = np.random.default_rng(num), make_figures()
        waiting, shuffle = draw.waiting(rng, num), rng.permutation(num)
        places = check_order(policy.order(waiting, figures), num).places
        other = check_order(policy.order(rearranged(waiting, shuffle), figures), num).places
        assert shuffle[other].tolist() == places.tolist()

    @pytest.mark.parametrize("num", [2, 3, 20, 300])
    def test_ties_do_not_depend_on_column_order(self, policy: SchedulePolicy, draw: Draw, num: int) -> None:
        """Requests may be equal in all columns except `arrival`."""
        rng, figures = np.random.default_rng(num), make_figures(num_running=num)
        tied: dict[str, Any] = {"priority": rng.integers(0, 2, num), "num_to_come": rng.integers(5, 7, num)}
        for columns in (dict[str, Any](), tied):
            waiting, running = draw.equal_waiting(num, **columns), draw.equal_running(num, **columns)
            shuffle = rng.permutation(num)
            mixed, mixed_running = rearranged(waiting, shuffle), rearranged(running, shuffle)
            order, other = (check_order(policy.order(given, figures), num) for given in (waiting, mixed))
            assert shuffle[other.places].tolist() == order.places.tolist()
            assert other.num_held == order.num_held
            retracted, others = (
                check_places("retraction_order", policy.retraction_order(given, figures), num)
                for given in (running, mixed_running)
            )
            assert shuffle[others].tolist() == retracted.tolist()
            gone = policy.give_way(waiting, int(shuffle[0]), running, figures)
            other_gone = policy.give_way(mixed, 0, mixed_running, figures)
            assert shuffle[other_gone].tolist() == gone.tolist()

    @pytest.mark.parametrize("num_tokens", [1, 20, 60, 1000, 50_000])
    @pytest.mark.parametrize("num_fresh", [0, 1, 20])
    @pytest.mark.parametrize("sets_fields", [False, True])
    def test_no_request_is_held_back_for_ever(
        self,
        policy: SchedulePolicy,
        draw: Draw,
        fields: Sequence[str],
        num_fresh: int,
        num_tokens: int,
        sets_fields: bool,
    ) -> None:
        """After a day, a policy must no longer hold the request: on a busy server, others always run."""
        waiting = draw.equal_waiting(
            1 + num_fresh,
            fields={name: [50_000.0] + [1.0] * num_fresh for name in fields} if sets_fields else {},
            waited=[DAY] + [0.0] * num_fresh,
            num_tokens=[num_tokens] + [10] * num_fresh,
            num_to_come=[1000] + [10] * num_fresh,
            served=[5000.0] + [0.0] * num_fresh,
            tenant=[1] + [0] * num_fresh,
            overtaken=[100_000] + [0] * num_fresh,
        )
        for num_running in (1, 100):
            figures = make_figures(num_waiting=len(waiting), num_running=num_running)
            order = check_order(policy.order(waiting, figures), len(waiting))
            admitted = order.places[: len(waiting) - order.num_held].tolist()
            assert 0 in admitted, f"held back although it has waited for a day ({num_running} others run)"

    def test_nothing_is_kept_of_ended_requests(self, policy: SchedulePolicy, draw: Draw) -> None:
        """A policy keeps no state between calls: memory is counted after 10,000 further requests."""
        counts, figures, rng = [], make_figures(), np.random.default_rng(1)
        for turn in range(3):
            for i in range(100):
                first = 1_000 + 100 * (100 * turn + i)
                waiting = draw.waiting(rng, 100)
                policy.order(replace(waiting, arrival=np.arange(first, first + 100)), figures)
                running = draw.running(rng, 100)
                policy.retraction_order(replace(running, arrival=np.arange(first, first + 100)), figures)
            del waiting, running
            gc.collect()
            counts.append(sys.getallocatedblocks())
        kept = counts[2] - counts[1]
        assert kept <= MAX_KEPT, f"{kept} blocks of memory more after 10,000 further requests"

    def test_ordering_thousands_costs_a_few_sorts(
        self, policy: SchedulePolicy, draw: Draw, max_sorts: float
    ) -> None:
        waiting = draw.waiting(np.random.default_rng(1), MANY)
        figures = make_figures(num_waiting=MANY, num_places=16)

        def asks() -> Ordering:
            return policy.order(waiting, figures)

        def sorts() -> object:
            return np.lexsort((waiting.arrival, waiting.num_cached))

        # Other processes may slow down single runs, so compare the fastest of several.
        took = [(seconds(asks), seconds(sorts)) for _ in range(9)]
        assert min(asked for asked, _ in took) / min(sorted_ for _, sorted_ in took) <= max_sorts

    @pytest.mark.parametrize("seed", range(4))
    def test_each_request_finishes_once_under_load(
        self, policy: SchedulePolicy, fields: Sequence[str], seed: int
    ) -> None:
        guard = IsolatedPolicy(policy, "under test", type(policy).__name__)
        load = PolicyLoad(guard, seed, fields)
        load.run(NUM_REQUESTS)
        assert guard.failure is None
        assert load.given == load.asked
        assert load.ends == dict.fromkeys(load.asked, 1)

    @pytest.mark.parametrize("seed", range(4))
    def test_few_requests_are_retracted_under_load(
        self, policy: SchedulePolicy, fields: Sequence[str], seed: int
    ) -> None:
        """Retracted requests may lose computed tokens, so requests must not retract each other."""
        load = PolicyLoad(policy, seed, fields)
        load.run(NUM_REQUESTS)
        assert load.num_retractions <= MAX_RETRACTIONS, f"retractions of {NUM_REQUESTS} requests"


def writable(columns: ColumnsT) -> ColumnsT:
    """Return a copy with writable columns."""
    return replace(columns, **{name: column.copy() for name, column in columns_of(columns).items()})


def listed(columns: Waiting | Running) -> dict[str, list[float]]:
    """Return the columns as lists."""
    return {name: column.tolist() for name, column in columns_of(columns).items()}


def seconds(call: Callable[[], object]) -> float:
    """Return the duration of a call, in seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
