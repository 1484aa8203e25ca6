"""Conformance tests of the `RequestField` interface."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from llmfw.core.base.errors import RequestError
from llmfw.core.interfaces.request_field import MAX_FIELDS_BYTES, RequestField
from llmfw.core.plugin.request_fields import checker, fault_of

from .declared import declared

MAX_VALUE_S = 1e-3
"""Time that the check of one value may take: all other requests wait for it."""
MAX_KEPT_BYTES = 20_000
"""Memory that a field may keep of 5,000 values."""

WORDS = ("", "a", "0", "true", "é漢🙂", '"\\\n\0', "a.b/c:d", "2026-01-01T00:00:00Z", "x" * 4_000)
NUMBERS = (0, 1, -1, 2, 7, 100, 1_000, 86_400, -(2**63), 2**63 - 1, 2**64, 0.5, -0.5, 1.0, 1e300)
CANDIDATES: tuple[Any, ...] = (
    *(True, False),
    *NUMBERS,
    *WORDS,
    *([], {}, [1], [0.5], ["a"], [[]], [None], [True]),
    *({"a": 1}, {"a": "b"}, {"": None}, {"a": {"b": [1]}}),
    *(list(range(300)), ["a"] * 300, {str(i): i for i in range(300)}),
)
"""JSON values of many types; those of a field's type are tried, in addition to its examples."""


class RequestFieldTests:
    """Conformance tests of a request field.

    Derive from this class and override the fixtures `field` and `accepted` (and `refused`, if `validate`
    refuses values). The field's class can also declare `accepted` and `refused` in its attribute
    `conformance`.
    """

    @pytest.fixture
    def field(self) -> RequestField:
        """Return the field under test, built with its options."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture field")

    @pytest.fixture
    def accepted(self, field: RequestField) -> Sequence[Any]:
        """Return JSON values that the field accepts, at least one."""
        found: Sequence[Any] = declared(field, "accepted", ())
        return found

    @pytest.fixture
    def refused(self, field: RequestField) -> Sequence[Any]:
        """Return JSON values that the field refuses, by its type or by `validate`."""
        found: Sequence[Any] = declared(field, "refused", ())
        return found

    def test_the_declaration_is_complete(self, field: RequestField) -> None:
        fault = fault_of(type(field))
        assert fault is None, f"{type(field).__name__} {fault}"

    def test_accepted_values_become_plain_data(self, field: RequestField, accepted: Sequence[Any]) -> None:
        if not accepted:
            pytest.skip("override the fixture `accepted` with values that the field accepts")
        for value in accepted:
            assert_plain(answer(field, value))

    def test_refused_values_are_errors(self, field: RequestField, refused: Sequence[Any]) -> None:
        for value in refused:
            assert refusal(field, value) is not None, f"{value!r:.80} is accepted"

    def test_any_value_of_the_type_is_answered(self, field: RequestField, accepted: Sequence[Any]) -> None:
        """An invalid value raises ValueError or RequestError, and a valid value becomes plain data."""
        for value in (*of_type(field, CANDIDATES), *accepted):
            try:
                found = answer(field, value)
            except (ValueError, RequestError):
                continue
            assert_plain(found)

    def test_errors_name_the_field(self, field: RequestField, refused: Sequence[Any]) -> None:
        """An error of `validate` has a text, and names this field or a field within it."""
        for value in (*of_type(field, CANDIDATES), *of_type(field, refused)):
            error = refusal(field, value)
            if isinstance(error, RequestError):
                assert str(error).strip(), f"no text for {value!r:.80}"
                assert (error.param or "").startswith("field"), f"names the parameter {error.param!r}"

    def test_equal_values_give_equal_results(self, field: RequestField, accepted: Sequence[Any]) -> None:
        """Holds after other values, and in hundreds of calls."""
        values = [*accepted, *of_type(field, CANDIDATES)]
        first = [outcome(field, value) for value in values]
        for _ in range(100):
            assert [outcome(field, value) for value in values] == first
        assert [outcome(field, value) for value in reversed(values)] == first[::-1]

    def test_checking_a_value_takes_no_time(self, field: RequestField, accepted: Sequence[Any]) -> None:
        for value in (*accepted, *of_type(field, CANDIDATES)):

            def check(value: Any = value) -> object:
                return outcome(field, value)

            taken = min(seconds(check) for _ in range(5))  # other processes may slow down single runs
            assert taken <= MAX_VALUE_S, f"{1e3 * taken:.1f} ms for {value!r:.80}"

    def test_values_are_forgotten(self, field: RequestField, accepted: Sequence[Any]) -> None:
        """Data kept for each request would grow without limit."""
        values = [*accepted, *of_type(field, CANDIDATES)] or [None]
        texts = [msgspec.json.encode(value) for value in values]

        def ask(num: int) -> None:
            for i in range(num):
                outcome(field, msgspec.json.decode(texts[i % len(texts)]))

        ask(5_000)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            ask(5_000)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before <= MAX_KEPT_BYTES, f"{after - before} bytes more after 5,000 further values"


def answer(field: RequestField, value: Any) -> Any:
    """Return a field's plain data for a JSON value. Calls the field as the API does, with the name "field".

    Raises:
        ValueError, RequestError: the value is refused. Any other exception is a fault of the field.
    """
    decoded = msgspec.json.decode(msgspec.json.encode(value), type=field.value_type)
    return checker("field", field)(decoded)


def refusal(field: RequestField, value: Any) -> ValueError | RequestError | None:
    """Return the error with which a field refuses a JSON value; None if it accepts the value."""
    try:
        answer(field, value)
    except (ValueError, RequestError) as error:
        return error
    return None


def outcome(field: RequestField, value: Any) -> object:
    """Return a field's plain data for a JSON value, or the text of its error."""
    try:
        return answer(field, value)
    except (ValueError, RequestError) as error:
        return f"{type(error).__name__}: {error}"


def of_type(field: RequestField, values: Sequence[Any]) -> list[Any]:
    """Return the values that the field's type allows."""
    found = []
    for value in values:
        try:
            msgspec.json.decode(msgspec.json.encode(value), type=field.value_type)
        except msgspec.ValidationError:
            continue
        found.append(value)
    return found


def assert_plain(value: Any) -> None:
    """Assert that a value can be sent to the engine, and is not too large for a request."""
    size = len(msgspec.msgpack.encode(value))
    assert size <= MAX_FIELDS_BYTES, f"{size} bytes; a request has at most {MAX_FIELDS_BYTES} for all fields"


def seconds(call: Callable[[], object]) -> float:
    """Return the duration of a call, in seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
