"""Who may wait, and what those who may not are told."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import OverloadedError, TenantLimitError
from llmfw.core.engine.admission.queue_gate import AdmissionRate, QueueGate


def filled(gate: QueueGate, *sizes: int, tenant: str = "") -> QueueGate:
    for i, size in enumerate(sizes):
        gate.check(size, tenant, 0.0)
        gate.enter(f"r{i}", size, tenant)
    return gate


def test_a_full_queue_refuses_until_an_admission() -> None:
    gate = filled(QueueGate(max_requests=2), 5, 5)
    with pytest.raises(OverloadedError, match="2 requests wait, and at most 2 may"):
        gate.check(1, "", 0.0)
    gate.admit("r0")
    gate.check(1, "", 0.0)


def test_the_token_limit_error_names_the_excess() -> None:
    gate = filled(QueueGate(max_tokens=100), 60)
    gate.check(40, "", 0.0)
    with pytest.raises(
        OverloadedError, match="60 tokens wait, and this one's 45 tokens would exceed the limit of 100 by 5"
    ):
        gate.check(45, "", 0.0)


def test_an_empty_queue_takes_any_prompt() -> None:
    filled(QueueGate(max_tokens=100), 5000)


def test_a_tenant_s_requests_count_until_they_end() -> None:
    gate = filled(QueueGate(max_tenant_requests=2), 1, 1, tenant="ann")
    gate.admit("r0")
    with pytest.raises(TenantLimitError, match="'ann' has 2 requests"):
        gate.check(1, "ann", 0.0)
    gate.check(1, "bob", 0.0)
    gate.leave("r0", 0.0)
    gate.check(1, "ann", 0.0)


def test_a_tenant_s_own_limit_replaces_the_default() -> None:
    gate = filled(QueueGate(max_tenant_requests=2), 1, 1, tenant="ann")
    gate.check(1, "ann", 0.0, max_requests=3)
    gate.enter("r2", 1, "ann")
    with pytest.raises(TenantLimitError, match="'ann' has 3 requests that wait or run; at most 3"):
        gate.check(1, "ann", 0.0, max_requests=3)


def test_a_key_s_waiting_requests_are_limited() -> None:
    gate = QueueGate(max_requests=100)
    for i in range(2):
        gate.check(1, "ann", 0.0, is_key=True, max_queued=2)
        gate.enter(f"r{i}", 1, "ann", is_key=True)
    with pytest.raises(TenantLimitError, match="'ann' has 2 requests that wait; at most 2 may wait"):
        gate.check(1, "ann", 0.0, is_key=True, max_queued=2)
    gate.check(1, "bob", 0.0, is_key=True, max_queued=2)
    gate.admit("r0")
    gate.check(1, "ann", 0.0, is_key=True, max_queued=2)


def test_a_refusal_estimates_the_retry_time() -> None:
    gate = filled(QueueGate(max_requests=2), 1, 1)
    gate.rate.note(0, 2, 0.0)
    gate.admit("r0")
    gate.rate.note(1, 1, 5.0)
    gate.enter("r2", 1, "")
    with pytest.raises(OverloadedError) as caught:
        gate.check(1, "", 5.0)
    assert caught.value.retry_after_s == 5.0


def test_each_key_keeps_its_share_when_full() -> None:
    gate = QueueGate(max_requests=8, max_tokens=80)
    enter_all(gate, "bob", 8, 10)
    enter_all(gate, "ann", 4, 10)  # half of what may wait
    for key in ("ann", "bob", ""):
        with pytest.raises(OverloadedError, match="12 requests wait, and at most 8 may"):
            gate.check(1, key, 0.0, is_key=bool(key))
    gate.check(1, "cid", 0.0, is_key=True)


def test_a_key_s_share_is_also_in_tokens() -> None:
    gate = QueueGate(max_tokens=80)
    enter_all(gate, "bob", 8, 10)
    enter_all(gate, "ann", 1, 35)
    gate.check(5, "ann", 0.0, is_key=True)
    with pytest.raises(OverloadedError, match="115 tokens wait"):
        gate.check(6, "ann", 0.0, is_key=True)


def test_invented_user_names_get_no_share() -> None:
    gate = filled(QueueGate(max_requests=2), 5, 5, tenant="user1")
    with pytest.raises(OverloadedError):
        gate.check(1, "user2", 0.0)


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.integers(1, 50)), max_size=200))
def test_shares_at_most_double_the_queue(steps: list[tuple[int, bool, int]]) -> None:
    gate = QueueGate(max_requests=10)
    for number, (tenant, is_key, size) in enumerate(steps):
        with contextlib.suppress(OverloadedError):
            gate.check(size, f"t{tenant}", 0.0, is_key=is_key)
            gate.enter(str(number), size, f"t{tenant}", is_key=is_key)
        assert gate.num_waiting <= 20


@pytest.mark.parametrize(
    ("given", "places", "pool", "requests", "tokens"),
    [
        ({}, 4, 1000, 256, 2**20),
        ({}, 100, 10**6, 1600, 8 * 10**6),
        ({"max_queued_requests": 3, "max_queued_tokens": 0}, 4, 1000, 3, None),
    ],
)
def test_bounds_are_derived_from_the_engine(
    given: dict[str, int], places: int, pool: int, requests: int, tokens: int | None
) -> None:
    gate = QueueGate.of(EngineConfig(model="m", **given), places, pool)
    assert (gate._max_requests, gate._max_tokens) == (requests, tokens)


def enter_all(gate: QueueGate, key: str, num: int, size: int) -> None:
    for i in range(num):
        gate.check(size, key, 0.0, is_key=True)
        gate.enter(f"{key}{i}", size, key, is_key=True)


@given(st.lists(st.tuples(st.sampled_from("ead"), st.integers(0, 5), st.integers(1, 9))))
def test_requests_that_left_are_not_counted(steps: list[tuple[str, int, int]]) -> None:
    gate, known = QueueGate(), set()
    for what, i, size in steps:
        if what == "e" and i not in known:
            gate.enter(str(i), size, f"t{i % 2}", is_key=i % 3 == 0)
            known.add(i)
        elif what == "a":
            gate.admit(str(i))
        elif what == "d":
            gate.leave(str(i), 0.0)
            known.discard(i)
    for i in known:
        gate.leave(str(i), 0.0)
    assert (gate.num_waiting, gate._num_tokens, gate._tenants, gate._num_of) == (0, 0, {}, {})


def test_the_rate_counts_admissions_while_others_wait() -> None:
    rate = AdmissionRate()
    rate.note(64, 10, 0.0)  # an empty engine took all of these at once
    assert rate.seconds_for(1, 1.0) is None
    for step in range(1, 5):
        rate.note(1, 10, 2.0 * step)
    assert rate.seconds_for(3, 8.0) == pytest.approx(6.0)
    rate.note(10, 0, 9.0)
    assert rate.seconds_for(14, 100.0) == pytest.approx(9.0)  # as it was when the queue was empty


def test_the_rate_forgets_old_admissions() -> None:
    rate = AdmissionRate()
    rate.note(0, 10, 0.0)
    rate.note(600, 10, 1.0)
    rate.note(30, 10, 100.0)
    assert rate.per_second(120.0) == pytest.approx(
        31 / 60
    )  # 30 in the last minute, and the next one is overdue
