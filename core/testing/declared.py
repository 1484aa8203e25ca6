"""What a part's class says of itself for its tests, so that derived classes and `llmfw check` need not repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def declared(part: Any, name: str, default: T) -> T:
    """Return what a part's attribute `conformance` has for a fixture's name, else the default."""
    known = getattr(part, "conformance", None)
    found: T = known.get(name, default) if isinstance(known, Mapping) else default
    return found
