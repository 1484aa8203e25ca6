"""Reads the test settings that a component's class declares in its attribute `conformance`.

Subclasses of the test classes, and `llmfw check`, need not repeat these settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def declared(component: Any, name: str, default: T) -> T:
    """Return the value of a fixture from a component's mapping `conformance`, or else the default."""
    known = getattr(component, "conformance", None)
    found: T = known.get(name, default) if isinstance(known, Mapping) else default
    return found


def built(make: Callable[..., T], *arguments: Any) -> T:
    """Build a component as a server does. If its class has options, pass them with their default values."""
    options = getattr(make, "Options", None)
    if isinstance(make, type) and options is not None and options.__struct_fields__:
        made: T = make(*arguments, options=options())
        return made
    return make(*arguments)
