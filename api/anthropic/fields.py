"""Reads a JSON object of a request key by key, and reports wrong values and unread keys by their path."""

from __future__ import annotations

import re
from typing import Any, NoReturn, TypeVar

import msgspec

from llmfw.core.base.errors import RequestError

ValueT = TypeVar("ValueT")


class Fields:
    """A JSON object in a request body, whose keys are read one by one.

    Args:
        value: the value that the client sent.
        param: path of the value, as in `messages[0].content[1]`.
        ignored: set that receives the paths of unread keys, when `close` is called.

    Raises:
        RequestError: the value is not an object.
    """

    def __init__(self, value: Any, param: str, ignored: set[str]) -> None:
        if not isinstance(value, dict):
            raise RequestError(f"{param} is {_shown(value)}; it must be an object", param=param)
        self.param = param
        self._left = dict(value)
        self._ignored = ignored

    def get(self, name: str, kind: type[ValueT], expected: str) -> ValueT | None:
        """Return the value of a key, or None if it is null or absent.

        Args:
            kind: type that the value must have.
            expected: description of a valid value, for the error.

        Raises:
            RequestError: the value has another type.
        """
        value = self._left.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.refuse(name, value, expected)
        return value

    def take(self, name: str, kind: type[ValueT], expected: str) -> ValueT:
        """Return the value of a required key; raise RequestError if it is null, absent or of another type."""
        value = self.get(name, kind, expected)
        if value is None:
            raise RequestError(
                f"{self.param}.{name} is missing; it must be {expected}", param=f"{self.param}.{name}"
            )
        return value

    def raw(self, name: str) -> Any:
        """Return the value of a key, of any type, or None if it is absent."""
        return self._left.pop(name, None)

    def close(self) -> None:
        """Add the paths of unread keys to `ignored`.

        The paths have no list indices, so a key that many items of a list have is reported once.
        """
        where = re.sub(r"\[\d+\]", "[]", self.param)
        self._ignored.update(f"{where}.{name}" for name, value in self._left.items() if value is not None)

    def refuse(self, name: str, value: Any, expected: str) -> NoReturn:
        """Raise RequestError for a wrong value."""
        param = f"{self.param}.{name}"
        raise RequestError(f"{param} is {_shown(value)}; it must be {expected}", param=param)


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 100 else f"{text[:100]}…"
