"""Converts the statistics of an engine to metric families."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from llmfw.core.base.engine_info import EngineInfo, EngineStats

from .histogram_family import add_histogram


def engine_families(info: EngineInfo, stats: EngineStats) -> Iterator[Metric]:
    """Yield the metric families of an engine, in the order in which they are shown."""
    yield _info(info)
    yield from _requests(stats)
    yield from _tokens(stats)
    yield from _steps(stats)


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
        "llmfw_kv_evicted_tokens_total",
        "Tokens that the prefix cache has evicted.",
        stats.num_evicted_tokens,
    )
    yield CounterMetricFamily(
        "llmfw_generated_tokens_total", "Tokens that were generated.", stats.num_generated_tokens
    )
    prompt = CounterMetricFamily(
        "llmfw_prompt_tokens_total", "Tokens of prompts that were started, by source.", labels=("source",)
    )
    prompt.add_metric(("computed",), stats.num_prompt_tokens - stats.num_prompt_cached)
    prompt.add_metric(("cached",), stats.num_prompt_cached)
    yield prompt
    output = CounterMetricFamily(
        "llmfw_generation_tokens_total", "Tokens that were generated, by source.", labels=("source",)
    )
    output.add_metric(("sampled",), stats.num_generated_tokens - stats.num_drafted_output)
    output.add_metric(("drafted",), stats.num_drafted_output)
    yield output
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


def _steps(stats: EngineStats) -> Iterator[Metric]:
    yield CounterMetricFamily("llmfw_steps_total", "Steps of the engine.", stats.num_steps)
    seconds = CounterMetricFamily(
        "llmfw_step_seconds_total", "Seconds of the engine's steps, by phase.", labels=("phase",)
    )
    for phase, value in msgspec.structs.asdict(stats.step_seconds).items():
        seconds.add_metric((phase,), value)
    yield seconds
    yield CounterMetricFamily(
        "llmfw_engine_idle_seconds_total",
        "Seconds in which the engine had nothing to do.",
        stats.idle_seconds,
    )
    gaps = HistogramMetricFamily(
        "llmfw_inter_token_latency_seconds",
        "Seconds between two tokens of a request, in the engine.",
        labels=("class",),
    )
    if stats.live_gaps is not None and stats.deferrable_gaps is not None:
        add_histogram(gaps, ("live",), stats.live_gaps)
        add_histogram(gaps, ("deferrable",), stats.deferrable_gaps)
        yield gaps
