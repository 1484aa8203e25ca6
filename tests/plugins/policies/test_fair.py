"""Fair shares: the vectorized order is that of the greedy algorithm of the paper."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.interfaces.policy import Waiting
from llmfw.core.testing.policy_views import make_figures, make_waiting
from llmfw.plugins.policies.fair import Fair


def fair(waiting: Waiting) -> list[int]:
    return Fair(Fair.Options()).order(waiting, make_figures()).places.tolist()


def greedy(waiting: Waiting) -> list[int]:
    """Admit the oldest of the tenant with the smallest counter, count its prompt, and so on."""
    counters = dict(zip(waiting.tenant.tolist(), waiting.served.tolist(), strict=True))
    left = sorted(range(len(waiting)), key=lambda place: waiting.arrival[place])
    admitted = []
    while left:
        heads = {waiting.tenant[place]: place for place in reversed(left)}
        place = min(heads.values(), key=lambda head: (counters[waiting.tenant[head]], waiting.arrival[head]))
        counters[waiting.tenant[place]] += waiting.num_tokens[place] - waiting.num_cached[place]
        left.remove(place)
        admitted.append(place)
    return admitted


@given(data=st.data(), num=st.integers(0, 30))
def test_the_order_equals_the_greedy_algorithm(data, num):
    tenant = data.draw(st.lists(st.integers(0, 4), min_size=num, max_size=num))
    served = data.draw(st.lists(st.integers(0, 20), min_size=5, max_size=5))
    waiting = make_waiting(
        num,
        arrival=data.draw(st.permutations(range(num))),
        tenant=tenant,
        served=[served[each] for each in tenant],
        num_tokens=data.draw(st.lists(st.integers(5, 12), min_size=num, max_size=num)),
        num_cached=data.draw(st.lists(st.integers(0, 5), min_size=num, max_size=num)),
    )
    assert fair(waiting) == greedy(waiting)


def test_large_queues_equal_the_greedy_algorithm():
    rng = random.Random(3)
    tenant = [rng.randrange(20) for _ in range(600)]
    tokens = [rng.randrange(1, 9) for _ in range(600)]
    waiting = make_waiting(600, tenant=tenant, served=[float(each % 7) for each in tenant], num_tokens=tokens)
    assert fair(waiting) == greedy(waiting)


def test_busy_tenants_do_not_precede_quiet_ones():
    waiting = make_waiting(5, tenant=[1, 1, 1, 1, 2], served=[0.0] * 5)
    assert fair(waiting) == [0, 4, 1, 2, 3]


@pytest.mark.parametrize(("served", "found"), [(0.0, [0, 2, 1]), (15.0, [0, 1, 2]), (5.0, [0, 2, 1])])
def test_tokens_already_served_count(served, found):
    assert fair(make_waiting(3, tenant=[1, 1, 2], served=[0.0, 0.0, served])) == found
