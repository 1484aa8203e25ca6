"""No request is overtaken more often than the bound says, by whatever order."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.interfaces.policy import Ordering, SchedulePolicy, Waiting
from llmfw.core.testing.policy_views import make_figures, make_waiting
from llmfw.plugins.policies.aging import aged
from llmfw.plugins.policies.lpm import LPM
from llmfw.plugins.policies.sjf import SJF


def overtaken_after(waiting: Waiting, admitted: list[int]) -> list[int]:
    """Return how often each of those that are left has been overtaken, after these were admitted one by one."""
    counts = waiting.overtaken.tolist()
    for num, place in enumerate(admitted):
        for other in set(range(len(waiting))) - set(admitted[: num + 1]):
            counts[other] += waiting.arrival[other] < waiting.arrival[place]
    return counts


@given(data=st.data(), num=st.integers(1, 20), bound=st.integers(1, 6), places=st.integers(0, 25))
def test_the_bound_holds_after_each_admission(data, num, bound, places):
    counts = data.draw(st.lists(st.integers(0, bound), min_size=num, max_size=num))
    waiting = make_waiting(num, arrival=data.draw(st.permutations(range(num))), overtaken=counts)
    wanted = Ordering(np.array(data.draw(st.permutations(range(num)))))
    found = aged(wanted, waiting, make_figures(num_places=places), bound).places.tolist()
    assert sorted(found) == list(range(num))
    for admitted in range(min(num, max(1, places)) + 1):
        assert max(overtaken_after(waiting, found[:admitted])) <= bound


@given(data=st.data(), num=st.integers(1, 20), bound=st.integers(1, 6))
def test_the_bound_is_the_only_reordering(data, num, bound):
    """Among requests that were never retracted."""
    counts = data.draw(st.lists(st.integers(0, bound), min_size=num, max_size=num).map(sorted))[::-1]
    waiting = make_waiting(num, overtaken=counts)
    wanted = data.draw(st.permutations(range(num)))
    found = aged(Ordering(np.array(wanted)), waiting, make_figures(), bound).places.tolist()
    for num_placed, place in enumerate(found):
        counts = overtaken_after(waiting, found[:num_placed])
        due = [other for other in found[num_placed:] if counts[other] >= bound]
        liked = next(other for other in wanted if other not in found[:num_placed])
        assert place == (min(due) if due else liked)


def test_without_a_bound_the_order_is_kept():
    waiting = make_waiting(3, overtaken=[10**6, 10**6, 0])
    assert aged(Ordering(np.array([2, 1, 0])), waiting, make_figures(), 0).places.tolist() == [2, 1, 0]


def test_held_requests_stay_held():
    waiting = make_waiting(3, overtaken=[5, 0, 0])
    assert aged(Ordering(np.array([2, 1, 0]), 2), waiting, make_figures(), 5).num_held == 2


def test_older_retracted_requests_hide_no_due_ones():
    waiting = make_waiting(4, overtaken=[0, 3, 0, 0])
    found = aged(Ordering(np.array([3, 2, 1, 0])), waiting, make_figures(), 3).places.tolist()
    assert found == [0, 1, 3, 2]


@pytest.mark.parametrize(
    "policy",
    [LPM(LPM.Options(max_overtaken=9)), SJF(SJF.Options(max_overtaken=9))],
    ids=lambda policy: type(policy).__name__,
)
def test_endless_load_admits_everyone_within_the_bound(policy: SchedulePolicy):
    rng = random.Random(1)
    counts = dict.fromkeys(range(40), 0)
    cached = {0: 0} | {arrival: rng.randrange(1, 9) for arrival in range(1, 40)}
    most = 0
    for arrival in range(40, 400):
        counts[arrival], cached[arrival] = 0, rng.randrange(1, 9)
        asked = list(counts)
        columns = {"overtaken": list(counts.values()), "num_cached": [cached[each] for each in asked]}
        waiting = make_waiting(len(asked), arrival=asked, **columns)
        first = asked[policy.order(waiting, make_figures(num_places=1)).places[0]]
        most = max(most, counts.pop(first))
        counts = {other: count + (other < first) for other, count in counts.items()}
    assert most == 9
    assert 0 not in counts
