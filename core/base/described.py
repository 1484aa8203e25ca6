"""Describes exceptions that come from any code, such as a plugin's."""

from __future__ import annotations

from .process_end import raise_if_end

_name_of_type = type.__dict__["__name__"].__get__
"""Reads a class's name, whatever its metaclass makes of the attribute."""


def message_of(error: BaseException) -> str:
    """Return an exception's message, even if its `__str__` raises any exception."""
    try:
        return "".join([str(error)])  # of class str itself: a subclass may have methods that raise
    except BaseException as fault:  # noqa: BLE001 - the code of a plugin may raise anything
        raise_if_end(fault)
        return f"its message cannot be read, since __str__ raises {_name_of_type(type(fault))}"


def described(error: BaseException) -> str:
    """Return an exception's class and message."""
    return f"{_name_of_type(type(error))}: {message_of(error)}"
