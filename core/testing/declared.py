"""Reads the facts for tests that a component's class declares, so that test classes and `llmfw check` need not repeat
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def declared(component: Any, name: str, default: T) -> T:
    """Return a fixture's value from a component's attribute `conformance`, or the default."""
    known = getattr(component, "conformance", None)
    found: T = known.get(name, default) if isinstance(known, Mapping) else default
    return found


def built(make: Callable[..., T], *arguments: Any) -> T:
    """Build a component as a server does. A class with options of its own receives their defaults."""
    options = getattr(make, "Options", None)
    if isinstance(make, type) and options is not None and options.__struct_fields__:
        made: T = make(*arguments, options=options())
        return made
    return make(*arguments)
