"""The metrics of requests, compared with figures that are computed from the same events in the plainest way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from llmfw.core.interfaces.observer import RequestEnded, RequestEvent, RequestFirstToken, RequestStarted
from llmfw.core.testing import RequestObserverTests
from llmfw.core.testing.observers import interleaved, request_events, samples_of
from llmfw.plugins.request_metrics.request_metrics import REFUSALS, RequestMetrics

from .expected_samples import expected_samples

LIVE = {"model": "m", "class": "live"}


class TestRequestMetrics(RequestObserverTests):
    @pytest.fixture(params=[0, 2])
    def observer(self, request: pytest.FixtureRequest) -> RequestMetrics:
        return metrics(max_tenants=request.param, max_adapters=request.param)

    @pytest.fixture
    def reference(self, observer: RequestMetrics) -> Callable[[Sequence[RequestEvent]], Any]:
        options = observer.options
        return partial(expected_samples, max_tenants=options.max_tenants, max_adapters=options.max_adapters)


def metrics(**options: int) -> RequestMetrics:
    return RequestMetrics(RequestMetrics.Options(**options))


def value(observer: RequestMetrics, name: str, **labels: str) -> float:
    return samples_of(observer).get((name, frozenset(labels.items())), 0.0)


def served(events: Sequence[RequestEvent], *, deferrable: bool = False) -> Iterator[RequestEvent]:
    """Yield the events as those of a served model."""
    change = {"model": "m", "deferrable": deferrable}
    for event in events:
        if isinstance(event, RequestStarted):
            yield msgspec.structs.replace(event, **change)
        else:
            assert event.started is not None
            yield msgspec.structs.replace(event, started=msgspec.structs.replace(event.started, **change))


def test_counts_are_those_of_the_events() -> None:
    events = list(served(interleaved(300, 1)))
    observer = metrics()
    observer.observe(events[:500])
    observer.observe(events[500:])
    ends = [event for event in events if isinstance(event, RequestEnded)]
    firsts = [event for event in events if isinstance(event, RequestFirstToken)]
    for finish, num in Counter(event.finish for event in ends).items():
        name = "llmfw_requests_finished_total"
        assert value(observer, name, **LIVE, finished_reason=finish) == num
    assert value(observer, "llmfw_requests_started_total", **LIVE) == 300
    assert value(observer, "llmfw_time_to_first_token_seconds_count", **LIVE) == len(firsts)
    whole = [event for event in ends if event.finish in ("stop", "length")]
    assert value(observer, "llmfw_e2e_request_latency_seconds_count", **LIVE) == len(whole)
    assert value(observer, "llmfw_request_generation_tokens_sum", **LIVE) == 7 * len(whole)


def test_times_of_the_phases_add_up() -> None:
    observer = metrics()
    observer.observe(list(served(list(request_events("a", "stop")))))
    found = {
        phase: value(observer, f"llmfw_request_{phase}_time_seconds_sum", **LIVE)
        for phase in ("queue", "prefill", "decode")
    }
    assert found == {"queue": 0.25, "prefill": 0.25, "decode": 0.5}
    assert value(observer, "llmfw_time_to_first_token_seconds_sum", **LIVE) == 0.5
    assert value(observer, "llmfw_e2e_request_latency_seconds_sum", **LIVE) == 1.0
    each = value(observer, "llmfw_request_time_per_output_token_seconds_sum", **LIVE)
    assert each == pytest.approx(0.5 / 6)


def test_the_first_token_counts_before_the_end() -> None:
    """Requests may run for minutes; an alert must not wait for their end."""
    observer = metrics()
    observer.observe(list(served(list(request_events("a", "stop"))))[:2])
    assert value(observer, "llmfw_time_to_first_token_seconds_count", **LIVE) == 1
    assert value(observer, "llmfw_e2e_request_latency_seconds_count", **LIVE) == 0


def test_batches_are_apart_from_live_requests() -> None:
    observer = metrics()
    observer.observe(list(served(list(request_events("a", "stop")), deferrable=True)))
    name = "llmfw_time_to_first_token_seconds_count"
    assert value(observer, name, model="m", **{"class": "deferrable"}) == 1
    assert value(observer, name, **LIVE) == 0


@pytest.mark.parametrize(("kind", "reason"), REFUSALS.items())
def test_refusals_have_a_reason(kind: str, reason: str) -> None:
    *_, end = served(list(request_events("a", "error", tokens=0)))
    observer = metrics()
    assert isinstance(end, RequestEnded)
    observer.observe([msgspec.structs.replace(end, error_kind=kind)])
    assert value(observer, "llmfw_admission_rejections_total", **LIVE, reason=reason) == 1
    assert value(observer, "llmfw_request_errors_total", **LIVE, error=kind) == 1


def test_later_failures_are_no_refusals() -> None:
    *_, end = served(list(request_events("a", "error")))
    observer = metrics()
    assert isinstance(end, RequestEnded)
    observer.observe([msgspec.structs.replace(end, error_kind="EngineDeadError")])
    refused = [
        num for (name, _), num in samples_of(observer).items() if name == "llmfw_admission_rejections_total"
    ]
    assert sum(refused) == 0


def test_refusals_start_at_zero() -> None:
    """Prometheus cannot see the increase of a counter whose first value is 1."""
    observer = metrics()
    observer.observe(list(served(list(request_events("a", "stop"))))[:1])
    found = samples_of(observer)
    for reason in REFUSALS.values():
        labels = frozenset({**LIVE, "reason": reason}.items())
        assert found["llmfw_admission_rejections_total", labels] == 0


def test_tenants_are_bounded_and_no_client_names_one() -> None:
    observer = metrics(max_tenants=2)
    for i, tenant in enumerate(["a", "b", "c", "d", "a", ""]):
        observer.observe(list(served(list(request_events(str(i), "stop", tenant=tenant)))))
    *_, end = request_events("x", "stop", tenant="user")
    assert isinstance(end, RequestEnded)
    user = msgspec.structs.replace(end.started, tenant_is_key=False)
    observer.observe([msgspec.structs.replace(end, started=user)])
    found = {
        dict(labels)["tenant"]: num
        for (name, labels), num in samples_of(observer).items()
        if name == "llmfw_tenant_requests_total"
    }
    assert found == {"a": 2, "b": 1, "other": 2, "none": 2}


def test_adapters_are_bounded_and_the_base_has_none() -> None:
    observer = metrics(max_adapters=2)
    for i, adapter in enumerate(["a", "b", "c", "d", "a", ""]):
        *_, end = request_events(str(i), "stop")
        assert isinstance(end, RequestEnded)
        started = msgspec.structs.replace(end.started, adapter=adapter)
        observer.observe([msgspec.structs.replace(end, started=started)])
    found = {
        dict(labels)["adapter"]: num
        for (name, labels), num in samples_of(observer).items()
        if name == "llmfw_adapter_requests_total"
    }
    assert found == {"a": 2, "b": 1, "other": 2}


def test_tokens_of_refused_requests_do_not_count() -> None:
    observer = metrics(max_tenants=1)
    *_, end = request_events("x", "error", tenant="a")
    assert isinstance(end, RequestEnded)
    refused = msgspec.structs.replace(end, finish="error", first_token_s=None, error_kind="RateLimitError")
    observer.observe([refused])
    assert not [name for name, _ in samples_of(observer) if name == "llmfw_tenant_tokens_total"]


@pytest.mark.parametrize(
    ("encode", "parse"), [(generate_latest, parse_text), (openmetrics.generate_latest, parse_openmetrics)]
)
def test_both_formats_have_the_same_samples(encode: Any, parse: Any) -> None:
    observer = metrics(max_tenants=2)
    observer.observe(list(served(interleaved(50, 1))))
    registry = CollectorRegistry()
    registry.register(Families(list(observer.metrics())))
    parsed = parse(encode(registry).decode())
    found = {(s.name, frozenset(s.labels.items())): s.value for f in parsed for s in f.samples}
    assert found == samples_of(observer)
    assert not any(name.endswith("_created") for name, _ in found)


class Families(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self.collect = lambda: families  # type: ignore[method-assign]


def test_without_the_option_no_metric_has_a_tenant() -> None:
    observer = metrics()
    observer.observe(list(served(list(request_events("a", "stop", tenant="alice")))))
    assert not [labels for _, labels in samples_of(observer) if "tenant" in dict(labels)]
