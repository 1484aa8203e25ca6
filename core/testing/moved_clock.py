"""Moves the clock of this process, for tests of what depends on the time of day."""

from __future__ import annotations

import contextlib
import datetime as datetimes
import sys
import time
from collections.abc import Iterator
from typing import Any

REAL = datetimes.datetime


class _AsDatetime(type):
    """Metaclass of a class that counts as `datetime` in `isinstance` and `issubclass`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, REAL)

    def __subclasscheck__(cls, subclass: type[Any]) -> bool:
        return issubclass(subclass, REAL)


@contextlib.contextmanager
def moved_clock(seconds: float) -> Iterator[None]:
    """Context manager in which `time.time`, `time.time_ns` and the times of day of `datetime` are later.

    Replaces these names in all modules that have imported them. `time.monotonic`, the clocks of other
    processes, and clocks that compiled code reads stay as they are.

    Args:
        seconds: by how much to move the clock.
    """
    replaced = {id(known): (known, other) for known, other in _clocks(seconds)}
    before: list[tuple[dict[str, Any], str, Any]] = []
    for module in [*sys.modules.values()]:
        names: dict[str, Any] = getattr(module, "__dict__", {})
        if names.get("__name__") == __name__:
            continue
        for name, value in [*names.items()]:
            if id(value) in replaced:
                before.append((names, name, value))
    try:
        for names, name, value in before:
            names[name] = replaced[id(value)][1]
        yield
    finally:
        for names, name, value in before:
            names[name] = value


def _clocks(seconds: float) -> Iterator[tuple[object, object]]:
    """Yield each function or class that tells the time of day, with the one that replaces it."""
    real_time, real_ns, real = time.time, time.time_ns, REAL
    moved_by = datetimes.timedelta(seconds=seconds)
    yield real_time, lambda: real_time() + seconds
    yield real_ns, lambda: real_ns() + int(seconds * 1e9)

    class Moved(REAL, metaclass=_AsDatetime):
        @classmethod
        def now(cls, tz: datetimes.tzinfo | None = None) -> Any:
            return real.now(tz) + moved_by

        @classmethod
        def utcnow(cls) -> Any:
            return real.now(datetimes.UTC).replace(tzinfo=None) + moved_by

        @classmethod
        def today(cls) -> Any:
            return real.now() + moved_by  # `today` would call the moved time.time

    yield real, Moved
