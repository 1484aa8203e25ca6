"""What a component's class says of itself for its tests, so that derived classes and `llmfw check` need not repeat it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def declared(component: Any, name: str, default: T) -> T:
    """Return what a component's attribute `conformance` has for a fixture's name, else the default."""
    known = getattr(component, "conformance", None)
    found: T = known.get(name, default) if isinstance(known, Mapping) else default
    return found


def built(make: Callable[..., T], *arguments: Any) -> T:
    """Build a component as a server does: a class that has options of its own is given them, here with their defaults."""
    options = getattr(make, "Options", None)
    if isinstance(make, type) and options is not None and options.__struct_fields__:
        made: T = make(*arguments, options=options())
        return made
    return make(*arguments)
