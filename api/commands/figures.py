"""Formats shares and durations for people."""

from __future__ import annotations

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def percent(part: float, whole: float) -> str:
    """Return a share as text, as in "37.4 %"."""
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def seconds(count: float) -> str:
    """Return a duration as text, as in "850 ms", "12.3 s" or "59.9 min"."""
    if count < 1:
        return f"{count * 1000:.0f} ms"
    size, unit = next(((size, unit) for size, unit in _UNITS if count >= size), (1.0, "s"))
    return f"{count / size:.1f} {unit}"
