"""Converts the statistics of engines to metric families."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

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

FamilyT = TypeVar("FamilyT", GaugeMetricFamily, CounterMetricFamily)


class EngineKey(NamedTuple):
    """Which engine of a server a sample is about. The only engine of a server has no labels.

    Attributes:
        model: served name of the engine's model, if the server has several models; else "".
        engine: number of the engine, if its model has several engines; else "".
    """

    model: str = ""
    engine: str = ""


Engines = Mapping[EngineKey, EngineStats]
"""Engine → its statistics."""


def engine_families(infos: Mapping[str, EngineInfo], engines: Engines) -> Iterator[Metric]:
    """Yield the metric families of engines, in the order in which they are shown.

    Args:
        infos: served name of each model, or "" for the only one → properties of its engines.
    """
    yield _info(infos)
    yield from _requests(engines)
    yield from _tokens(engines)
    yield from _steps(engines)


def restarts_family(restarts: Mapping[EngineKey, int]) -> Metric:
    """Return the family of restarts.

    Args:
        restarts: engine → how often it was restarted.
    """
    family = CounterMetricFamily(
        "llmfw_engine_restarts_total",
        "Times that the engine process was started again after it had died or hung.",
        labels=_labels(restarts),
    )
    for engine, count in restarts.items():
        family.add_metric(_values(engine), count)
    return family


def continued_family(count: int) -> Metric:
    """Return the family of requests that another engine has continued.

    Args:
        count: how often another engine, or a restarted one, has continued a request.
    """
    family = CounterMetricFamily(
        "llmfw_requests_continued_total",
        "Times that a request with output was continued by another engine, or a restarted one.",
    )
    family.add_metric((), count)
    return family


def _labels(engines: Iterable[EngineKey], *own: str) -> tuple[str, ...]:
    """Return the names of a family's labels. Those that tell engines apart come first."""
    first = next(iter(engines), EngineKey())
    return (*(name for name in EngineKey._fields if getattr(first, name)), *own)


def _values(engine: EngineKey, *own: str) -> tuple[str, ...]:
    """Return the values of the labels that `_labels` returns."""
    return (*filter(None, engine), *own)


def _one(
    kind: Callable[..., FamilyT],
    name: str,
    help: str,
    engines: Engines,
    value: Callable[[EngineStats], float],
) -> FamilyT:
    """Return a family with one value for each engine."""
    return _several(kind, name, help, engines, "", lambda stats: {"": value(stats)})


def _several(
    kind: Callable[..., FamilyT],
    name: str,
    help: str,
    engines: Engines,
    label: str,
    values: Callable[[EngineStats], Mapping[str, float]],
) -> FamilyT:
    """Return a family with several values for each engine.

    Args:
        label: name of the label that tells the values apart; "": there is one value.
        values: function that returns value of the label → value of the metric.
    """
    own = (label,) if label else ()
    family = kind(name, help, labels=_labels(engines, *own))
    for engine, stats in engines.items():
        for which, value in values(stats).items():
            family.add_metric(_values(engine, *((which,) if label else ())), value)
    return family


def _info(infos: Mapping[str, EngineInfo]) -> Metric:
    # The library adds `_info` to the name of the sample.
    family = InfoMetricFamily(
        "llmfw_engine",
        "Properties of the engine, as labels; the value is always 1.",
        labels=_labels([EngineKey(model) for model in infos]),
    )
    for model, info in infos.items():
        properties = {
            "dtype": info.dtype,
            "quantization": info.quantization or "none",
            "kv_cache_dtype": info.kv_cache_dtype or "none",
            "attention": info.attention,
        }
        family.add_metric(_values(EngineKey(model)), properties)
    return family


def _requests(engines: Engines) -> Iterator[Metric]:
    yield _several(
        GaugeMetricFamily,
        "llmfw_running_requests",
        "Requests that have a place in the engine's steps.",
        engines,
        "class",
        lambda stats: {
            "live": stats.num_running - stats.num_deferrable_running,
            "deferrable": stats.num_deferrable_running,
        },
    )
    yield _several(
        GaugeMetricFamily,
        "llmfw_waiting_requests",
        "Requests that wait for a place.",
        engines,
        "class",
        lambda stats: {
            "live": stats.num_waiting - stats.num_deferrable_waiting,
            "deferrable": stats.num_deferrable_waiting,
        },
    )


def _tokens(engines: Engines) -> Iterator[Metric]:
    yield _one(
        GaugeMetricFamily,
        "llmfw_kv_tokens",
        "Size of the KV storage in tokens.",
        engines,
        lambda stats: stats.num_total_tokens,
    )
    yield _one(
        GaugeMetricFamily,
        "llmfw_kv_used_tokens",
        "Tokens of the KV storage that running requests hold, shared ones counted once.",
        engines,
        lambda stats: stats.num_used_tokens,
    )
    yield _one(
        GaugeMetricFamily,
        "llmfw_kv_cached_tokens",
        "Tokens of the KV storage that the prefix cache has, in use or not.",
        engines,
        lambda stats: stats.num_cached_tokens,
    )
    yield _one(
        CounterMetricFamily,
        "llmfw_kv_evicted_tokens_total",
        "Tokens that the prefix cache has evicted.",
        engines,
        lambda stats: stats.num_evicted_tokens,
    )
    yield _several(
        CounterMetricFamily,
        "llmfw_images_total",
        "Images in prompts, without those in cached prefixes, by source.",
        engines,
        "source",
        lambda stats: {"encoded": stats.num_images_encoded, "kept": stats.num_images_found},
    )
    yield _one(
        CounterMetricFamily,
        "llmfw_generated_tokens_total",
        "Tokens that were generated.",
        engines,
        lambda stats: stats.num_generated_tokens,
    )
    yield _several(
        CounterMetricFamily,
        "llmfw_prompt_tokens_total",
        "Tokens of prompts that were started, by source.",
        engines,
        "source",
        lambda stats: {
            "computed": stats.num_prompt_tokens - stats.num_prompt_cached,
            "cached": stats.num_prompt_cached,
        },
    )
    yield _several(
        CounterMetricFamily,
        "llmfw_generation_tokens_total",
        "Tokens that were generated, by source.",
        engines,
        "source",
        lambda stats: {
            "sampled": stats.num_generated_tokens - stats.num_drafted_output,
            "drafted": stats.num_drafted_output,
        },
    )
    yield from _counts(engines)


def _counts(engines: Engines) -> Iterator[Metric]:
    yield _one(
        CounterMetricFamily,
        "llmfw_retractions_total",
        "Times that a running request gave its memory to others.",
        engines,
        lambda stats: stats.num_retractions,
    )
    yield _one(
        CounterMetricFamily,
        "llmfw_drafted_tokens_total",
        "Tokens that a drafter guessed and the model checked.",
        engines,
        lambda stats: stats.num_drafted_tokens,
    )
    yield _one(
        CounterMetricFamily,
        "llmfw_accepted_tokens_total",
        "Guessed tokens that the model would have sampled, too.",
        engines,
        lambda stats: stats.num_accepted_tokens,
    )


def _steps(engines: Engines) -> Iterator[Metric]:
    yield _one(
        CounterMetricFamily,
        "llmfw_steps_total",
        "Steps of the engine.",
        engines,
        lambda stats: stats.num_steps,
    )
    yield _several(
        CounterMetricFamily,
        "llmfw_step_seconds_total",
        "Seconds of the engine's steps, by phase.",
        engines,
        "phase",
        lambda stats: msgspec.structs.asdict(stats.step_seconds),
    )
    yield _one(
        CounterMetricFamily,
        "llmfw_engine_idle_seconds_total",
        "Seconds in which the engine had nothing to do.",
        engines,
        lambda stats: stats.idle_seconds,
    )
    gaps = HistogramMetricFamily(
        "llmfw_inter_token_latency_seconds",
        "Seconds between two tokens of a request, in the engine.",
        labels=_labels(engines, "class"),
    )
    for engine, stats in engines.items():
        if stats.live_gaps is not None and stats.deferrable_gaps is not None:
            add_histogram(gaps, _values(engine, "live"), stats.live_gaps)
            add_histogram(gaps, _values(engine, "deferrable"), stats.deferrable_gaps)
    if gaps.samples:
        yield gaps
    encoding = HistogramMetricFamily(
        "llmfw_image_encode_seconds",
        "Seconds that the model's encoder took for an image.",
        labels=_labels(engines),
    )
    for engine, stats in engines.items():
        if stats.image_seconds is not None:
            add_histogram(encoding, _values(engine), stats.image_seconds)
    if encoding.samples:
        yield encoding
