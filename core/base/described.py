"""Describes exceptions that come from any code, such as a plugin's."""

from __future__ import annotations

from typing import Any

from .process_end import raise_if_end

_name_of_type = type.__dict__["__name__"].__get__
"""Reads a class's name, whatever its metaclass makes of the attribute."""


_exceptions: Any = vars(BaseExceptionGroup)["exceptions"].__get__
"""Reads a group's exceptions, whatever a subclass makes of the attribute."""

MAX_MEMBERS = 3
"""Number of a group's exceptions that are described. Others are counted in the group's message."""
_MAX_VISITED = 50
"""Number of exceptions and groups within a group that are looked at, as a plugin may nest groups to any depth."""


def message_of(error: BaseException) -> str:
    """Return an exception's message, even if its `__str__` raises any exception."""
    try:
        return "".join([str(error)])  # of class str itself: a subclass may have methods that raise
    except BaseException as fault:  # noqa: BLE001 - the code of a plugin may raise anything
        raise_if_end(fault)
        return f"its message cannot be read, since __str__ raises {_name_of_type(type(fault))}"


def described(error: BaseException) -> str:
    """Return an exception's class and message; of a group, also those of the first exceptions within it."""
    text = f"{_name_of_type(type(error))}: {message_of(error)}"
    within = "; ".join(f"{_name_of_type(type(each))}: {message_of(each)}" for each in _leaves(error))
    return f"{text}: {within}" if within else text


def members_of(error: BaseException) -> tuple[BaseException, ...]:
    """Return a group's exceptions, without running code of its class; of any other exception, none."""
    return _exceptions(error) if issubclass(type(error), BaseExceptionGroup) else ()


def _leaves(error: BaseException) -> list[BaseException]:
    """Return the first exceptions within a group that are no groups; of any other exception, none."""
    found: list[BaseException] = []
    visited, waiting = 0, list(reversed(members_of(error)))
    while waiting and len(found) < MAX_MEMBERS and visited < _MAX_VISITED:
        each = waiting.pop()
        visited += 1
        if members := members_of(each):
            waiting.extend(reversed(members))
        else:
            found.append(each)
    return found
