"""Exceptions of plugins run none of their own code when others handle them."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from llmfw.core.base.disarm import MAX_CHAIN, causes_of, disarm, readable
from llmfw.core.base.errors import RequestError


class EndingText(str):
    """A text that ends the process when it is used."""

    def __str__(self) -> str:
        raise SystemExit(3)

    __format__ = __str__  # type: ignore[assignment]


def ending(self: Any, *args: object) -> Any:
    raise SystemExit(3)


def raising(error: BaseException) -> None:
    raise error


def raise_on_the_way_out(error: BaseException) -> None:
    """Raise an exception, and a SystemExit while it is handled, so that a stack reads the contexts of both."""
    with contextlib.ExitStack() as stack:
        stack.callback(ending, None)
        stack.callback(raising, error)


def class_with(name: str, base: type[BaseException] = Exception) -> Callable[[], BaseException]:
    """Return a class of exceptions with an attribute that ends the process when it is read, or called."""
    is_called = name in (
        "__getattribute__",
        "__setattr__",
        "__str__",
        "__bool__",
        "with_traceback",
        "add_note",
    )
    return type(
        "OddError", (base,), {"__module__": __name__, name: ending if is_called else property(ending)}
    )


class EndingMeta(type):
    """A class whose name ends the process."""

    __name__ = property(ending)  # type: ignore[assignment]


def with_notes(notes: object) -> BaseException:
    error = ValueError("7 is odd")
    error.__notes__ = notes  # type: ignore[assignment]
    return error


class EndingList(list[str]):
    __iter__ = __len__ = ending


def with_cause(cause: BaseException) -> BaseException:
    error = ValueError("7 is odd")
    error.__cause__ = cause
    return error


ODD: dict[str, Callable[[], BaseException]] = {
    **{
        name: class_with(name)
        for name in ("__getattribute__", "__setattr__", "__str__", "__bool__", "__class__")
    },
    **{name: class_with(name) for name in ("__cause__", "__context__", "__traceback__", "__notes__", "args")},
    **{name: class_with(name) for name in ("with_traceback", "add_note")},
    **{
        f"SyntaxError.{name}": class_with(name, SyntaxError) for name in ("filename", "lineno", "text", "msg")
    },
    "group": lambda: ExceptionGroup("odd", [class_with("__str__")()]),  # type: ignore[list-item]
    "metaclass": EndingMeta("OddError", (Exception,), {}),
    "notes": lambda: with_notes(EndingList(["odd"])),
    "notes of odd texts": lambda: with_notes([EndingText("odd")]),
    "argument": lambda: ValueError(EndingText("odd")),
    "cause": lambda: with_cause(class_with("__getattribute__")()),
    "cause of a cause": lambda: with_cause(with_cause(class_with("__str__")())),
    "of an exit": class_with("code", SystemExit),
}


@pytest.mark.parametrize("made", ODD.values(), ids=ODD.keys())
def test_no_code_of_the_class_runs(made: Callable[[], BaseException]) -> None:
    error = made()
    assert readable(error) is error
    with pytest.raises(SystemExit) as ended:
        raise_on_the_way_out(error)
    traceback.format_exception(ended.value)
    assert not isinstance(error, KeyError)
    error.add_note("a note")
    error.__traceback__ = None


def test_name_and_message_stay() -> None:
    error = class_with("__cause__")()
    error.args = ("7 is odd",)
    disarm(error)
    assert traceback.format_exception_only(error) == [f"{__name__}.OddError: 7 is odd\n"]


def test_an_error_of_llmfw_stays_one() -> None:
    error = type("OddError", (RequestError,), {"__cause__": property(ending)})("7 is odd", param="n")
    assert disarm(error)
    assert isinstance(error, RequestError)
    assert (str(error), error.param) == ("7 is odd", "n")


def test_an_ordinary_exception_stays() -> None:
    class OwnError(ValueError):
        def __str__(self) -> str:
            return "own"

    error = OwnError(7)
    assert readable(error) is error
    assert type(error) is OwnError
    assert str(error) == "own"


def test_a_class_with_slots_is_left_behind() -> None:
    class SlotsError(Exception):
        __slots__ = ("size",)
        __str__ = ending

    found = readable(SlotsError())
    assert str(found) == "SlotsError: its message cannot be read, since __str__ raises SystemExit"


def test_chains_are_cut() -> None:
    error = ValueError("0")
    for number in range(5000):
        later = ValueError(str(number))
        later.__cause__, later.__context__ = error, KeyError(number)
        error = later
    assert disarm(error)
    assert len(causes_of(error)) < MAX_CHAIN
    assert len(traceback.format_exception(error)) < 4 * MAX_CHAIN


def test_a_ring_of_causes_is_walked_once() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert disarm(first)
    assert causes_of(first) == [first, second]


def test_deeply_nested_groups_are_left_behind() -> None:
    error: Exception = ValueError("7 is odd")
    for _ in range(1000):
        error = ExceptionGroup("odd", [error])
    assert isinstance(readable(error), RuntimeError)
