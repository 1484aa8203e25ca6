"""Describes exceptions of code that may be anybody's."""

from __future__ import annotations


def message_of(error: BaseException) -> str:
    """Return an exception's message, also if its `__str__` raises."""
    try:
        return str(error)
    except Exception as fault:  # noqa: BLE001 - the code of a plugin may raise anything
        return f"its message cannot be read, since __str__ raises {type(fault).__name__}"


def described(error: BaseException) -> str:
    """Return an exception's class and message."""
    return f"{type(error).__name__}: {message_of(error)}"
