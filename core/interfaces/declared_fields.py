"""The values of request fields, as components get them. Misspelt names are errors and not missing values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from llmfw.core.base.errors import UndeclaredFieldError
from llmfw.core.base.suggestion import did_you_mean


class DeclaredFields(dict[str, Any]):
    """Values of a request's fields, by name, for a component that may ask for declared fields only.

    Without this class, a component that misspells a name would find that no request ever sets the field. Names that
    the request has are always known.

    Args:
        fields: the values. The new object is a shallow copy.
        declared: names of the request fields that plugins register.
    """

    __slots__ = ("_declared",)

    def __init__(self, fields: Mapping[str, Any] = {}, declared: Collection[str] = ()) -> None:
        super().__init__(fields)
        self._declared = declared

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a field, or the default. Raises UndeclaredFieldError if no plugin registers it."""
        self._check(key)
        return super().get(key, default)

    def __missing__(self, key: str) -> Any:
        """Raise KeyError for a declared field that the request does not set, else UndeclaredFieldError."""
        self._check(key)
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        """Return whether the request sets a field. Raises UndeclaredFieldError if no plugin registers it."""
        self._check(key)
        return super().__contains__(key)

    def _check(self, key: object) -> None:
        if not super().__contains__(key):
            check_declared(key, self._declared)


def check_declared(name: object, declared: Collection[str]) -> None:
    """Raise UndeclaredFieldError if no plugin declares the request field of this name.

    Args:
        declared: names of the request fields that plugins register.
    """
    if name in declared:
        return
    known = f"the fields are {', '.join(sorted(declared))}" if declared else "no plugin registers any"
    raise UndeclaredFieldError(
        f"no plugin registers the request field {name!r}; {known}{did_you_mean(str(name), declared)}"
    )
