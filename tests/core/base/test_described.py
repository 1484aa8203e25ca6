"""Any exception can be described."""

from __future__ import annotations

from llmfw.core.base.described import described


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise KeyError("no message")


def test_class_and_message_are_named() -> None:
    assert described(ValueError("7 is odd")) == "ValueError: 7 is odd"


def test_an_unreadable_message_is_reported() -> None:
    assert (
        described(UnreadableError())
        == "UnreadableError: its message cannot be read, since __str__ raises KeyError"
    )
