"""Compares the router's estimates with what came true."""

from __future__ import annotations

from llmfw.core.base.histogram import TOKEN_BOUNDS, Histogram


class RouterAccuracy:
    """Counts, of requests to one engine, the seconds until the prompt is computed: as estimated, and as they were.

    Attributes:
        estimated: estimates, made when the requests were sent to the engine.
        actual: seconds from then to the first output of the same requests.
    """

    def __init__(self) -> None:
        self.estimated = Histogram.empty(TOKEN_BOUNDS)
        self.actual = Histogram.empty(TOKEN_BOUNDS)

    def note(self, estimated_s: float, actual_s: float) -> None:
        """Count a request that has its first output."""
        self.estimated.add(estimated_s)
        self.actual.add(actual_s)
