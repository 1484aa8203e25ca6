"""API keys take turns, whatever the policy and whatever each sends; a single key is scheduled as before."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfw.core.interfaces.policy import Ordering, SchedulePolicy, Waiting
from llmfw.core.schedule.tenants import Tenants
from llmfw.core.schedule.turns import take_turns
from llmfw.plugins.policies.fair import Fair
from llmfw.plugins.policies.fcfs import FCFS
from llmfw.plugins.policies.lpm import LPM
from llmfw.plugins.policies.priority import Priority
from llmfw.plugins.policies.sjf import SJF

from .driver import Driver

POLICIES = (FCFS, LPM, SJF, Priority, Fair)


def ask(driver: Driver, tenant: str, number: int, draw: random.Random, *, is_key: bool = True) -> None:
    """Add a request of a tenant, of any size; bob's share a prefix and are urgent."""
    shared = [1] * 8 if tenant == "bob" else []
    prompt = shared + [draw.randrange(2, 20) for _ in range(draw.randint(1, 12))]
    driver.add(
        f"{tenant}{number}",
        prompt,
        draw.randint(1, 12),
        tenant=tenant,
        tenant_is_key=is_key,
        priority=5 if tenant == "bob" else 0,
    )


def waiting_columns(num: int, tenants: int) -> Waiting:
    """Return columns of requests that wait, of keys in turns."""
    zeros = np.zeros(num, dtype=np.int64)
    tenant = np.arange(num) % tenants
    return Waiting(
        arrival=np.arange(num),
        waited=np.zeros(num),
        time_left=np.full(num, np.inf),
        priority=zeros,
        num_tokens=np.full(num, 10),
        num_cached=zeros,
        num_to_come=np.full(num, 5),
        tenant=tenant,
        served=np.zeros(num),
        overtaken=zeros,
        field=lambda name: np.full(num, np.nan),
        request=lambda place: None,  # type: ignore[arg-type,return-value]
    )


def books(*names: str, is_key: bool = True) -> Tenants:
    tenants = Tenants()
    for name in names:
        tenants.join(name, is_key=is_key)
    return tenants


def test_turns_keep_the_order_within_a_key() -> None:
    """Held requests stay held."""
    waiting = waiting_columns(6, 2)
    order = Ordering(np.array([4, 2, 0, 5, 3, 1]), num_held=1)
    found = take_turns(order, waiting, books("ann", "bob"))
    assert found.places.tolist() == [4, 5, 2, 3, 0, 1]
    assert found.num_held == 1


@pytest.mark.parametrize("names", [("ann",), ("ann", "bob")])
def test_turns_need_at_least_two_keys(names: tuple[str, ...]) -> None:
    order = Ordering(np.array([4, 2, 0, 5, 3, 1]))
    waiting = waiting_columns(6, len(names))
    assert take_turns(order, waiting, books(*names, is_key=len(names) == 1)) is order


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6), num_keys=st.integers(2, 4))
def test_each_key_gets_half_its_share(policy: type[SchedulePolicy], seed: int, num_keys: int) -> None:
    draw = random.Random(seed)
    driver = Driver(policy=policy, num_tokens=400, budget=24, max_running=6)
    names = ["bob", "ann", "cid", "dan"][:num_keys]
    sizes = {"bob": 150} | {name: draw.randint(60, 90) for name in names[1:]}
    for name in names:  # bob floods before the others come
        for i in range(sizes[name]):
            ask(driver, name, i, draw)
    served = Counter[str]()
    for _ in range(100):
        plan = driver.step()
        counts = plan.counts.tolist()
        for seq, count in zip(plan.sequences, counts, strict=True):
            served[seq.request.tenant] += count
    total = sum(served.values())
    assert all(served[name] >= total / num_keys / 2 for name in names), served


def test_a_flooding_key_yields_places() -> None:
    driver = Driver(policy=LPM, num_tokens=4000, max_running=8)
    for i in range(20):
        driver.add(f"bob{i}", [2] * 4, 200, tenant="bob", tenant_is_key=True)
    for _ in range(10):
        driver.step()
    for i in range(20):
        driver.add(f"ann{i}", [3] * 4, 40, tenant="ann", tenant_is_key=True)
    for _ in range(8):
        driver.step()
    running = Counter(seq.request.tenant for seq in driver.scheduler.live.running)
    assert running["ann"] == 4
    assert driver.scheduler.num_retractions == 4
    driver.finish()
    assert len(driver.ended) == 40


def test_users_without_keys_displace_no_other() -> None:
    draw = random.Random(1)
    driver = Driver(policy=LPM, num_tokens=4000, max_running=8)
    for i in range(8):
        driver.add(f"bob{i}", [2] * 4, 100, tenant="bob")
    driver.step()
    for i in range(20):
        ask(driver, f"user{i}", i, draw, is_key=False)
    driver.step()
    assert {seq.request.tenant for seq in driver.scheduler.live.running} == {"bob"}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(2))
def test_one_key_alone_is_scheduled_as_without_keys(policy: type[SchedulePolicy], seed: int) -> None:
    plans = []
    for is_key in (False, True):
        draw = random.Random(seed)
        driver = Driver(policy=policy, num_tokens=300, budget=24, max_running=6)
        for i in range(30):
            ask(driver, "bob", i, draw, is_key=is_key)
        steps = []
        while driver.scheduler.has_work:
            plan = driver.step()
            steps.append(
                [(seq.id, count) for seq, count in zip(plan.sequences, plan.counts.tolist(), strict=True)]
            )
        plans.append(steps)
    assert plans[0] == plans[1]
