"""Converts the records of components' calls to metric families."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from llmfw.core.base.engine_info import ComponentUse

from .histogram_family import add_histogram

Component = tuple[str, str, str]
"""Kind, name and plugin."""


def component_families(uses: Sequence[ComponentUse]) -> Iterator[Metric]:
    """Yield the metric families of components.

    Args:
        uses: totals of the calls of plugins' components. Totals of the same component in two processes are
            added up.
    """
    labels = ("kind", "name", "plugin")
    seconds = CounterMetricFamily(
        "llmfw_plugin_seconds_total",
        "Seconds that the calls of a plugin's component have taken.",
        labels=labels,
    )
    calls = CounterMetricFamily("llmfw_plugin_calls_total", "Calls of a plugin's component.", labels=labels)
    failures = CounterMetricFamily(
        "llmfw_plugin_failures_total",
        "Calls in which a plugin's component raised what it should not.",
        labels=labels,
    )
    by_component: dict[Component, list[ComponentUse]] = {}
    for use in uses:
        by_component.setdefault((use.kind, use.name, use.plugin), []).append(use)
    for component, of_component in sorted(by_component.items()):
        seconds.add_metric(component, sum(use.seconds for use in of_component))
        calls.add_metric(component, sum(use.calls for use in of_component))
        failures.add_metric(component, sum(use.failures for use in of_component))
    yield from (seconds, calls, failures)
    yield from _dropped(by_component)
    yield from _stores(uses)


def _dropped(by_component: Mapping[Component, Sequence[ComponentUse]]) -> Iterator[Metric]:
    observers = {key: uses for key, uses in by_component.items() if key[0] == "observer"}
    if observers:
        family = CounterMetricFamily(
            "llmfw_observer_dropped_events_total",
            "Events that an observer did not get, because it was too slow or failed.",
            labels=("name", "plugin"),
        )
        for (_, name, plugin), uses in sorted(observers.items()):
            family.add_metric((name, plugin), sum(use.dropped for use in uses))
        yield family


def _stores(uses: Sequence[ComponentUse]) -> Iterator[Metric]:
    stores = [use for use in uses if use.latency is not None]
    if stores:
        family = HistogramMetricFamily(
            "llmfw_store_call_seconds", "Seconds of a call of a store.", labels=("kind", "name")
        )
        for use in stores:
            assert use.latency is not None
            add_histogram(family, (use.kind, use.name), use.latency)
        yield family
        refused = CounterMetricFamily(
            "llmfw_store_failures_total",
            "Calls of a store that failed and changed nothing, for example because its disk is full.",
            labels=("kind", "name"),
        )
        for use in stores:
            refused.add_metric((use.kind, use.name), use.refused)
        yield refused
