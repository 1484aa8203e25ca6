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
