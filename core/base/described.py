"""Describes exceptions of code that may be anybody's."""

from __future__ import annotations


def described(error: BaseException) -> str:
    """Return an exception's class and message, also if its `__str__` raises."""
    try:
        text = str(error)
    except Exception as fault:  # noqa: BLE001 - the code of a plugin may raise anything
        text = f"its message cannot be read, since __str__ raises {type(fault).__name__}"
    return f"{type(error).__name__}: {text}"
