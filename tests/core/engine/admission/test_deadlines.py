"""Deadlines and the times at which clients are told, by a clock that the test turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.engine.admission.deadlines import Deadlines
from llmfw.core.engine.admission.waits import Waits


def test_take_due_returns_each_deadline_once() -> None:
    deadlines = Deadlines()
    for id, timeout in (("a", 5.0), ("b", 1.0), ("c", 3.0)):
        deadlines.add(id, timeout, 10.0)
    deadlines.forget("c")
    assert deadlines.take_due(11.0) == {"b": 1.0}
    assert deadlines.take_due(14.0) == {}
    assert deadlines.next == 15.0
    assert deadlines.take_due(15.0) == {"a": 5.0}
    assert deadlines.next is None


def test_a_reused_id_has_its_new_deadline() -> None:
    deadlines = Deadlines()
    deadlines.add("a", 1.0, 0.0)
    deadlines.forget("a")
    deadlines.add("a", 9.0, 0.0)
    assert deadlines.take_due(5.0) == {}
    assert deadlines.take_due(9.0) == {"a": 9.0}


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(0.1, 100), st.booleans())))
def test_take_due_returns_due_ids_except_forgotten_ones(steps: list[tuple[int, float, bool]]) -> None:
    deadlines, expected = Deadlines(), {}
    for id, timeout, forgotten in steps:
        deadlines.forget(str(id))
        expected.pop(str(id), None)
        if not forgotten:
            deadlines.add(str(id), timeout, 0.0)
            expected[str(id)] = timeout
    for now in (25.0, 50.0, 100.0):
        due = {id: timeout for id, timeout in expected.items() if timeout <= now}
        assert deadlines.take_due(now) == due
        expected = {id: timeout for id, timeout in expected.items() if id not in due}


def test_forgotten_deadlines_do_not_accumulate() -> None:
    deadlines = Deadlines()
    for i in range(5000):
        deadlines.add(str(i), 86400.0, 0.0)
        deadlines.forget(str(i))
    assert len(deadlines._heap) < 100


def test_waits_are_reported_at_once_then_every_second() -> None:
    waits = Waits()
    waits.add("a", 0.0)
    assert waits.take_due(0.01) == ["a"]
    assert waits.take_due(1.0) == []
    assert waits.take_due(1.02) == ["a"]
    waits.forget(["a"])
    assert (waits.take_due(9.0), waits.next) == ([], None)


def test_new_waits_are_batched_after_a_report() -> None:
    """Requests that arrive within 0.1 s of a report are reported together."""
    waits = Waits()
    waits.add("a", 0.0)
    assert waits.take_due(0.0) == ["a"]
    for i in range(5):
        waits.add(f"b{i}", 0.01 * i)
    assert waits.take_due(0.05) == []
    assert waits.next == 0.1
    assert waits.take_due(0.1) == [f"b{i}" for i in range(5)]


def test_an_admitted_request_is_not_reported_at_once() -> None:
    """Its first token usually arrives first."""
    waits = Waits()
    waits.add("a", 0.0)
    waits.put_off("a", 0.0)
    assert waits.take_due(0.05) == []
    assert waits.take_due(0.1) == ["a"]
