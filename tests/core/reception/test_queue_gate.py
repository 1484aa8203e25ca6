"""Who may wait, and what those who may not are told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.errors import OverloadedError, TenantLimitError
from llmfw.core.reception.queue_gate import AdmissionRate, QueueGate


def filled(gate: QueueGate, *sizes: int, tenant: str = "") -> QueueGate:
    for i, size in enumerate(sizes):
        gate.check(size, tenant, 0.0)
        gate.enter(f"r{i}", size, tenant)
    return gate


def test_a_queue_of_so_many_requests_takes_no_other_until_one_is_admitted() -> None:
    gate = filled(QueueGate(max_requests=2), 5, 5)
    with pytest.raises(OverloadedError, match="2 requests wait, and at most 2 may"):
        gate.check(1, "", 0.0)
    gate.admit("r0")
    gate.check(1, "", 0.0)


def test_a_queue_of_so_many_tokens_says_by_how_much_a_prompt_is_too_long() -> None:
    gate = filled(QueueGate(max_tokens=100), 60)
    gate.check(40, "", 0.0)
    with pytest.raises(
        OverloadedError, match="60 tokens wait, and with this one's 45 it were 5 more than the 100"
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


def test_a_refused_client_is_told_when_there_may_be_room() -> None:
    gate = filled(QueueGate(max_requests=2), 1, 1)
    gate.rate.note(0, 2, 0.0)
    gate.admit("r0")
    gate.rate.note(1, 1, 5.0)
    gate.enter("r2", 1, "")
    with pytest.raises(OverloadedError) as caught:
        gate.check(1, "", 5.0)
    assert caught.value.retry_after_s == 5.0


@given(st.lists(st.tuples(st.sampled_from("ead"), st.integers(0, 5), st.integers(1, 9))))
def test_what_has_left_leaves_nothing_behind(steps: list[tuple[str, int, int]]) -> None:
    gate, known = QueueGate(), set()
    for what, i, size in steps:
        if what == "e" and i not in known:
            gate.enter(str(i), size, f"t{i % 2}")
            known.add(i)
        elif what == "a":
            gate.admit(str(i))
        elif what == "d":
            gate.leave(str(i), 0.0)
            known.discard(i)
    for i in known:
        gate.leave(str(i), 0.0)
    assert (gate.num_waiting, gate._num_tokens, gate._tenants, gate._num_of) == (0, 0, {}, {})


def test_the_rate_is_of_admissions_while_others_wait() -> None:
    rate = AdmissionRate()
    rate.note(64, 10, 0.0)  # an empty engine took all of these at once
    assert rate.seconds_for(1, 1.0) is None
    for step in range(1, 5):
        rate.note(1, 10, 2.0 * step)
    assert rate.seconds_for(3, 8.0) == pytest.approx(6.0)
    rate.note(10, 0, 9.0)
    assert rate.seconds_for(14, 100.0) == pytest.approx(9.0)  # as it was when the queue was empty


def test_the_rate_forgets_what_was_long_ago() -> None:
    rate = AdmissionRate()
    rate.note(0, 10, 0.0)
    rate.note(600, 10, 1.0)
    rate.note(30, 10, 100.0)
    assert rate.per_second(120.0) == pytest.approx(
        31 / 60
    )  # 30 in the last minute, and the next one is overdue
