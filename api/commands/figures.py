"""Shares and times as people read them."""

from __future__ import annotations

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def percent(part: float, whole: float) -> str:
    """Return a share as in "37.4 %"."""
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def seconds(count: float) -> str:
    """Return a time as in "850 ms", "12.3 s", "59.9 min"."""
    if count < 1:
        return f"{count * 1000:.0f} ms"
    size, unit = next(((size, unit) for size, unit in _UNITS if count >= size), (1.0, "s"))
    return f"{count / size:.1f} {unit}"
