"""Histograms of durations: the number of durations in each bucket. Plain data that msgspec can encode."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

TOKEN_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
"""Bounds, in seconds, for times between tokens. From 0.01 on they are vLLM's."""

CALL_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds, in seconds, for calls of components."""


class Histogram(msgspec.Struct, array_like=True):
    """The number of durations of each size since the process started.

    Attributes:
        bounds: upper bounds in seconds, ascending. A duration counts in the first bucket whose bound it does
            not exceed.
        counts: number of durations in each bucket: one more than bounds, the last without a bound.
        seconds: sum of the durations.
    """

    bounds: tuple[float, ...]
    counts: list[int]
    seconds: float = 0.0

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> Histogram:
        """Return a histogram without durations."""
        return cls(bounds, [0] * (len(bounds) + 1))

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.seconds += seconds

    def add_all(self, other: Histogram) -> None:
        """Count the durations of another histogram with the same bounds."""
        self.counts = [own + theirs for own, theirs in zip(self.counts, other.counts, strict=True)]
        self.seconds += other.seconds
