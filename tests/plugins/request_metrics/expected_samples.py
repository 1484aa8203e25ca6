"""The samples of `request-metrics`, computed in the plainest way from a list of events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from prometheus_client.utils import floatToGoString

from llmfw.core import RequestEnded, RequestEvent, RequestFirstToken, RequestStarted

FIRST_TOKEN = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75]
FIRST_TOKEN += [1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0]
PHASE = [0.001, 0.005, 0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0]
PHASE += [40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0]
PER_TOKEN = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75]
PER_TOKEN += [1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0]
TOKENS = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
]
BOUNDS: Mapping[str, Sequence[float]] = {
    "llmfw_time_to_first_token_seconds": FIRST_TOKEN,
    "llmfw_e2e_request_latency_seconds": PHASE,
    "llmfw_request_queue_time_seconds": PHASE,
    "llmfw_request_prefill_time_seconds": PHASE,
    "llmfw_request_decode_time_seconds": PHASE,
    "llmfw_request_time_per_output_token_seconds": PER_TOKEN,
    "llmfw_request_prompt_tokens": TOKENS,
    "llmfw_request_generation_tokens": TOKENS,
}
"""Upper bounds of the buckets of each histogram. Those of times are vLLM's."""

REASONS = {"OverloadedError": "queue_full", "RequestError": "invalid", "DeadlineError": "timeout"}
"""Why requests of `varied_requests` are refused, by the error's class; its EngineError is no refusal."""

ALL_REASONS = {
    "engine_dead",
    "engine_restarting",
    "grammar_cost",
    "not_ready",
    "rate_limit",
    "tenant_limit",
    *REASONS.values(),
}
Labels = dict[str, str]


def expected_samples(events: Sequence[RequestEvent], max_tenants: int, max_adapters: int) -> Any:
    """Return the samples, comparable by `==` with others up to rounding: (name, labels) → value."""
    found: Counter[tuple[str, frozenset[tuple[str, str]]]] = Counter()
    by_name = (*_tenant_counts(events, max_tenants), *_adapter_counts(events, max_adapters))
    for name, labels, number in (*_counts(events), *by_name):
        found[name, frozenset(labels.items())] += number  # type: ignore[assignment]
    for (name, key), numbers in _observed(events).items():
        found[f"{name}_sum", key] = sum(numbers)  # type: ignore[assignment]
        found[f"{name}_count", key] = len(numbers)
        for bound in (*BOUNDS[name], float("inf")):
            found[f"{name}_bucket", key | {("le", floatToGoString(bound))}] = sum(
                each <= bound for each in numbers
            )
    return pytest.approx(dict(found), rel=1e-9)


def _counts(events: Sequence[RequestEvent]) -> Iterator[tuple[str, Labels, float]]:
    for event in events:
        labels = _labels(event)
        match event:
            case RequestStarted():
                yield "llmfw_requests_started_total", labels, 1
                for finish in ("stop", "length", "abort", "error"):
                    yield "llmfw_requests_finished_total", {**labels, "finished_reason": finish}, 0
                for reason in ALL_REASONS:
                    yield "llmfw_admission_rejections_total", {**labels, "reason": reason}, 0
            case RequestFirstToken():
                yield "llmfw_requests_admitted_total", labels, 1
            case RequestEnded():
                yield from _counts_of_end(event, labels)


def _counts_of_end(event: RequestEnded, labels: Labels) -> Iterator[tuple[str, Labels, float]]:
    yield "llmfw_requests_finished_total", {**labels, "finished_reason": event.finish}, 1
    if event.started.task == "embed" and event.finish == "stop":
        yield "llmfw_requests_admitted_total", labels, 1
    if event.restarts > 0:
        yield "llmfw_request_restarts_total", labels, event.restarts
    if event.finish == "error":
        yield "llmfw_request_errors_total", {**labels, "error": event.error_kind}, 1
        if event.first_token_s is None and event.error_kind in REASONS:
            yield "llmfw_admission_rejections_total", {**labels, "reason": REASONS[event.error_kind]}, 1


def _tenant_counts(events: Sequence[RequestEvent], most: int) -> Iterator[tuple[str, Labels, float]]:
    ends = [event for event in events if isinstance(event, RequestEnded)] if most else []
    known = [*dict.fromkeys(end.started.tenant for end in ends if end.started.tenant_is_key)][:most]
    for end in ends:
        started = end.started
        name = (started.tenant if started.tenant in known else "other") if started.tenant_is_key else "none"
        yield from _counts_by("tenant", name, end)


def _adapter_counts(events: Sequence[RequestEvent], most: int) -> Iterator[tuple[str, Labels, float]]:
    ends = [event for event in events if isinstance(event, RequestEnded) and event.started.adapter]
    known = [*dict.fromkeys(end.started.adapter for end in ends)][:most]
    for end in ends if most else []:
        name = end.started.adapter
        yield from _counts_by("adapter", name if name in known else "other", end)


def _counts_by(label: str, name: str, end: RequestEnded) -> Iterator[tuple[str, Labels, float]]:
    labels = {label: name, "class": _labels(end)["class"]}
    yield f"llmfw_{label}_requests_total", labels, 1
    if end.finish in ("stop", "length") or end.first_token_s is not None:
        yield f"llmfw_{label}_tokens_total", {**labels, "kind": "prompt"}, end.started.prompt_tokens
        yield f"llmfw_{label}_tokens_total", {**labels, "kind": "cached"}, end.cached_tokens
        yield f"llmfw_{label}_tokens_total", {**labels, "kind": "output"}, end.output_tokens


def _observed(events: Sequence[RequestEvent]) -> dict[tuple[str, frozenset[tuple[str, str]]], list[float]]:
    """Return the numbers in each histogram."""
    found: defaultdict[tuple[str, frozenset[tuple[str, str]]], list[float]] = defaultdict(list)
    for event in events:
        key = frozenset(_labels(event).items())
        if isinstance(event, RequestFirstToken):
            found["llmfw_time_to_first_token_seconds", key].append(event.first_token_s)
            found["llmfw_request_queue_time_seconds", key].append(event.queued_s)
            found["llmfw_request_prefill_time_seconds", key].append(event.first_token_s - event.queued_s)
        elif isinstance(event, RequestEnded) and event.finish in ("stop", "length"):
            found["llmfw_e2e_request_latency_seconds", key].append(event.duration_s)
            found["llmfw_request_prompt_tokens", key].append(event.started.prompt_tokens)
            if event.first_token_s is None:
                continue
            decode_s = event.duration_s - event.first_token_s
            found["llmfw_request_decode_time_seconds", key].append(decode_s)
            found["llmfw_request_generation_tokens", key].append(event.output_tokens)
            if event.output_tokens > 1:
                each_s = decode_s / (event.output_tokens - 1)
                found["llmfw_request_time_per_output_token_seconds", key].append(each_s)
    return found


def _labels(event: RequestEvent) -> Labels:
    started = event if isinstance(event, RequestStarted) else event.started
    assert started is not None
    return {"model": started.model, "class": "deferrable" if started.deferrable else "live"}
