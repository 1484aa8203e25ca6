"""Converts the waits that the router estimated, and the actual waits, to metric families."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import HistogramMetricFamily, Metric

from llmfw.core.client.client import ReplicaState

from .histogram_family import add_histogram

_NAMES = {
    "estimated": (
        "llmfw_router_estimated_seconds",
        "Seconds until the prompt of a live request is computed, as estimated when it was sent to the engine.",
    ),
    "waited": (
        "llmfw_router_waited_seconds",
        "Seconds from when a live request with an estimate was sent to the engine to its first output.",
    ),
}


def router_families(engines: Sequence[ReplicaState]) -> Iterator[Metric]:
    """Yield the metric families of several engines; none for one engine."""
    for field, (name, help) in _NAMES.items() if engines else ():
        family = HistogramMetricFamily(name, help, labels=("engine",))
        for state in engines:
            if (found := getattr(state, field)) is not None:
                add_histogram(family, (str(state.number),), found)
        yield family
