"""Compares the router's estimates with the measured times."""

from __future__ import annotations

from llmfw.core.base.histogram import TOKEN_BOUNDS, Histogram


class RouterAccuracy:
    """Collects estimated and measured seconds until a prompt is computed, for requests to one engine.

    Attributes:
        estimated: estimated seconds, from the time at which each request was sent to the engine.
        actual: measured seconds from the same times to the first output of the same requests.
    """

    def __init__(self) -> None:
        self.estimated = Histogram.empty(TOKEN_BOUNDS)
        self.actual = Histogram.empty(TOKEN_BOUNDS)

    def note(self, estimated_s: float, actual_s: float) -> None:
        """Count a request that has its first output."""
        self.estimated.add(estimated_s)
        self.actual.add(actual_s)
