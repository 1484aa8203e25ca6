"""A traceback without messages shows where and what, and nothing of a client."""

from __future__ import annotations

import base64

import pytest

from llmfw.core.base.bare_traceback import CAUSE, CONTEXT, bare_traceback

SECRET = "very-secret 'quoted'\n"


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error from cause
    return caught.value


@pytest.mark.parametrize(
    "message", [SECRET, repr(SECRET), base64.b64encode(SECRET.encode()).decode(), SECRET[3:9], SECRET.upper()]
)
def test_no_form_of_a_message_is_shown(message: str) -> None:
    error = raised(ValueError(message), KeyError(message))
    error.add_note(message)
    shown = bare_traceback(raised(ExceptionGroup(message, [error])))  # type: ignore[list-item]
    assert message not in shown
    assert shown.endswith("\nExceptionGroup")


def test_places_and_types_are_shown() -> None:
    lines = bare_traceback(raised(ValueError("x"), KeyError("x"))).splitlines()
    assert (lines[0], lines[1], lines[3]) == ("Traceback (most recent call last):", "KeyError", CAUSE)
    assert f'File "{__file__}", line' in lines[6]
    assert lines[7].strip() == "raise error from cause"
    assert lines[-1] == "ValueError"


def test_a_context_is_shown() -> None:
    error = raised(ConnectionRefusedError(111, SECRET))
    error.__context__, error.__suppress_context__ = KeyError(), False
    assert CONTEXT in bare_traceback(error)
    assert bare_traceback(error).endswith("ConnectionRefusedError: [Errno 111] Connection refused")
    error.__suppress_context__ = True
    assert CONTEXT not in bare_traceback(error)


def test_a_circular_chain_ends() -> None:
    first, second = ValueError(), KeyError()
    first.__context__, second.__context__ = second, first
    assert bare_traceback(first).count("Traceback") == 2
