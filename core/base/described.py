"""Describes exceptions of code that may be anybody's."""

from __future__ import annotations

from .process_end import raise_if_process_ends

_name_of_type = type.__dict__["__name__"].__get__
"""Reads a class's name, whatever its metaclass makes of the attribute."""


def message_of(error: BaseException) -> str:
    """Return an exception's message, also if its `__str__` raises, whatever it raises."""
    try:
        return "".join([str(error)])  # of class str itself: a subclass may have methods that raise
    except BaseException as fault:  # noqa: BLE001 - the code of a plugin may raise anything
        raise_if_process_ends(fault)
        return f"its message cannot be read, since __str__ raises {_name_of_type(type(fault))}"


def described(error: BaseException) -> str:
    """Return an exception's class and message."""
    return f"{_name_of_type(type(error))}: {message_of(error)}"


def readable(error: BaseException) -> BaseException:
    """Return an exception that can be logged and tested; another one in its place if its own methods raise.

    Logging a traceback asks an exception for its truth and its message, and `isinstance` asks for its `__class__`. If one of
    them raises, so does what handles the exception.
    """
    try:
        str(error), bool(error), isinstance(error, _OtherError)
    except BaseException as fault:  # noqa: BLE001 - the code of a plugin may raise anything
        raise_if_process_ends(fault)
        return RuntimeError(described(error)).with_traceback(error.__traceback__)
    return error


class _OtherError(Exception):
    """A class that no exception has, so that `isinstance` asks for `__class__`."""
