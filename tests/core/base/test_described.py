"""Any exception can be described."""

from __future__ import annotations

import signal

import pytest

from llmfw.core.base.described import described


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise KeyError("no message")


def test_class_and_message_are_named() -> None:
    assert described(ValueError("7 is odd")) == "ValueError: 7 is odd"


@pytest.mark.parametrize("raised", [SystemExit(1), KeyboardInterrupt()])
def test_a_message_ends_no_process(raised: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda number: None)  # as a server, which handles SIGINT

    class Named(type):
        @property
        def __name__(cls) -> str:
            raise raised

    class EndingError(Exception, metaclass=Named):
        def __str__(self) -> str:
            raise raised

    found = f"EndingError: its message cannot be read, since __str__ raises {type(raised).__name__}"
    assert described(EndingError()) == found


def test_an_unreadable_message_is_reported() -> None:
    assert (
        described(UnreadableError())
        == "UnreadableError: its message cannot be read, since __str__ raises KeyError"
    )


def test_a_group_names_what_is_within() -> None:
    inner = ExceptionGroup("b", [KeyError(2), UnreadableError()])
    group = ExceptionGroup("a", [ValueError("7 is odd"), inner, ValueError("a fourth")])
    assert described(group) == (
        "ExceptionGroup: a (3 sub-exceptions): ValueError: 7 is odd; KeyError: 2; "
        "UnreadableError: its message cannot be read, since __str__ raises KeyError"
    )


def test_a_deep_group_is_described() -> None:
    group: Exception = ValueError("deep")
    for _ in range(2_000):
        group = ExceptionGroup("a", [group])
    assert described(group) == "ExceptionGroup: a (1 sub-exception)"
