"""Deadlines and the times at which clients are told, by a clock that the test turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.engine.admission.deadlines import Deadlines
from llmfw.core.engine.admission.waits import Waits


def test_what_is_due_is_given_once_and_the_rest_says_when() -> None:
    deadlines = Deadlines()
    for id, timeout in (("a", 5.0), ("b", 1.0), ("c", 3.0)):
        deadlines.add(id, timeout, 10.0)
    deadlines.forget("c")
    assert deadlines.take_due(11.0) == {"b": 1.0}
    assert deadlines.take_due(14.0) == {}
    assert deadlines.next == 15.0
    assert deadlines.take_due(15.0) == {"a": 5.0}
    assert deadlines.next is None


def test_an_id_that_is_used_again_has_its_new_time() -> None:
    deadlines = Deadlines()
    deadlines.add("a", 1.0, 0.0)
    deadlines.forget("a")
    deadlines.add("a", 9.0, 0.0)
    assert deadlines.take_due(5.0) == {}
    assert deadlines.take_due(9.0) == {"a": 9.0}


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(0.1, 100), st.booleans())))
def test_each_request_is_due_at_its_time_or_was_forgotten(steps: list[tuple[int, float, bool]]) -> None:
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


def test_those_who_end_long_before_their_time_do_not_pile_up() -> None:
    deadlines = Deadlines()
    for i in range(5000):
        deadlines.add(str(i), 86400.0, 0.0)
        deadlines.forget(str(i))
    assert len(deadlines._heap) < 100


def test_a_client_is_told_in_its_first_step_and_then_once_a_second() -> None:
    waits = Waits()
    waits.add("a", 0.0)
    assert waits.take_due(0.01) == ["a"]
    assert waits.take_due(1.0) == []
    assert waits.take_due(1.02) == ["a"]
    waits.forget(["a"])
    assert (waits.take_due(9.0), waits.next) == ([], None)


def test_those_who_come_right_after_another_was_told_are_told_together() -> None:
    waits = Waits()
    waits.add("a", 0.0)
    assert waits.take_due(0.0) == ["a"]
    for i in range(5):
        waits.add(f"b{i}", 0.01 * i)
    assert waits.take_due(0.05) == []
    assert waits.next == 0.1
    assert waits.take_due(0.1) == [f"b{i}" for i in range(5)]


def test_one_that_was_admitted_has_a_moment_for_its_first_token() -> None:
    waits = Waits()
    waits.add("a", 0.0)
    waits.put_off("a", 0.0)
    assert waits.take_due(0.05) == []
    assert waits.take_due(0.1) == ["a"]
