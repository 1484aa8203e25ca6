"""Percentiles of seconds, in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PERCENTS = (50, 90, 95, 99)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile, interpolated linearly as numpy does; None if there are no values."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def milliseconds(seconds: float | None) -> float | None:
    """Return seconds as milliseconds, to the microsecond."""
    return None if seconds is None else round(seconds * 1000, 3)


def latencies(name: str, seconds: Sequence[float]) -> dict[str, Any]:
    """Return the percentiles of a latency: {"name_p50_ms": …, …}."""
    return {f"{name}_p{percent}_ms": milliseconds(percentile(seconds, percent)) for percent in PERCENTS}
