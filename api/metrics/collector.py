"""Converts the statistics of one scrape to metric families of prometheus_client.

prometheus_client calls `collect` synchronously, but the engine answers asynchronously. So each scrape creates
a collector from statistics that were fetched before. Does not depend on HTTP or on text formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from llmfw.core.base.engine_info import ComponentUse, EngineInfo, EngineStats


class ServerCollector(Collector):
    """Metrics of the API process and, if the engine answered, of the engine.

    Args:
        uses: totals of the calls of plugins' components. Totals of the same component in two processes are
            added up.
        num_restarts: restarts of the engine since the server started.
        engine: the engine's fixed properties and its statistics; None if it did not answer.
    """

    def __init__(
        self, uses: Sequence[ComponentUse], num_restarts: int, engine: tuple[EngineInfo, EngineStats] | None
    ) -> None:
        self._uses = uses
        self._num_restarts = num_restarts
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families in the order in which they are shown."""
        yield from _components(self._uses)
        yield CounterMetricFamily(
            "llmfw_engine_restarts_total",
            "Times that the engine process was started again after it had died or hung.",
            self._num_restarts,
        )
        if self._engine is not None:
            info, stats = self._engine
            yield _info(info)
            yield from _requests(stats)
            yield from _tokens(stats)


def _components(uses: Sequence[ComponentUse]) -> Iterator[Metric]:
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
    by_component: dict[tuple[str, str, str], list[ComponentUse]] = {}
    for use in uses:
        by_component.setdefault((use.kind, use.name, use.plugin), []).append(use)
    for component, of_component in sorted(by_component.items()):
        seconds.add_metric(component, sum(use.seconds for use in of_component))
        calls.add_metric(component, sum(use.calls for use in of_component))
        failures.add_metric(component, sum(use.failures for use in of_component))
    yield from (seconds, calls, failures)
    yield from _dropped(by_component)


def _dropped(by_component: Mapping[tuple[str, str, str], Sequence[ComponentUse]]) -> Iterator[Metric]:
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


def _info(info: EngineInfo) -> Metric:
    labels = {
        "dtype": info.dtype,
        "quantization": info.quantization or "none",
        "kv_cache_dtype": info.kv_cache_dtype or "none",
        "attention": info.attention,
    }
    # The library adds `_info` to the name of the sample.
    return InfoMetricFamily(
        "llmfw_engine", "Properties of the engine, as labels; the value is always 1.", labels
    )


def _requests(stats: EngineStats) -> Iterator[Metric]:
    for name, help, num, num_deferrable in (
        (
            "llmfw_running_requests",
            "Requests that have a place in the engine's steps.",
            stats.num_running,
            stats.num_deferrable_running,
        ),
        (
            "llmfw_waiting_requests",
            "Requests that wait for a place.",
            stats.num_waiting,
            stats.num_deferrable_waiting,
        ),
    ):
        family = GaugeMetricFamily(name, help, labels=("class",))
        family.add_metric(("live",), num - num_deferrable)
        family.add_metric(("deferrable",), num_deferrable)
        yield family


def _tokens(stats: EngineStats) -> Iterator[Metric]:
    yield GaugeMetricFamily("llmfw_kv_tokens", "Size of the KV storage in tokens.", stats.num_total_tokens)
    yield GaugeMetricFamily(
        "llmfw_kv_used_tokens",
        "Tokens of the KV storage that running requests hold, shared ones counted once.",
        stats.num_used_tokens,
    )
    yield GaugeMetricFamily(
        "llmfw_kv_cached_tokens",
        "Tokens of the KV storage that the prefix cache has, in use or not.",
        stats.num_cached_tokens,
    )
    yield CounterMetricFamily(
        "llmfw_generated_tokens_total", "Tokens that were generated.", stats.num_generated_tokens
    )
    yield CounterMetricFamily(
        "llmfw_retractions_total",
        "Times that a running request gave its memory to others.",
        stats.num_retractions,
    )
    yield CounterMetricFamily(
        "llmfw_drafted_tokens_total",
        "Tokens that a drafter guessed and the model checked.",
        stats.num_drafted_tokens,
    )
    yield CounterMetricFamily(
        "llmfw_accepted_tokens_total",
        "Guessed tokens that the model would have sampled, too.",
        stats.num_accepted_tokens,
    )
