"""Traces of requests, decoded by a collector."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from llmfw.core import ConfigError
from llmfw.core.interfaces.observer import RequestEnded, RequestEvent
from llmfw.core.testing import RequestObserverTests
from llmfw.core.testing.observers import request_events
from llmfw.plugins.traces_otel.otel_traces import OtelTraces

from .collector import Collector, collecting, values
from .expected_spans import expected_spans

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
BEGUN_NS = 1_800_000_000 * 10**9


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with collecting() as found:
        yield found


def traces(collector: Collector, **options: object) -> OtelTraces:
    return OtelTraces(msgspec.convert({"endpoint": collector.url} | options, OtelTraces.Options))


def ended(finish: str = "stop", **changes: object) -> list[RequestEvent]:
    """Return the events of a chat, with changes to the first one."""
    changes = {"model": "m"} | changes
    events = list(request_events("chatcmpl-1-0", finish))
    end = events[-1]
    assert isinstance(end, RequestEnded)
    started = msgspec.structs.replace(end.started, **changes)
    return [started, msgspec.structs.replace(end, started=started)]


class Newest(SpanExporter):
    """Keeps the newest 2,000 spans: all of them would count as the observer's memory."""

    def __init__(self) -> None:
        self.spans: deque[ReadableSpan] = deque(maxlen=2_000)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS

    def found(self) -> list[dict[str, Any]]:
        """Return the spans as plain values. A parent is the id of its request, or of the client's span."""
        ids = {
            span.context.span_id: dict(span.attributes or {}).get("gen_ai.response.id") for span in self.spans
        }
        return [
            {
                "name": span.name,
                "kind": span.kind.name,
                "parent": span.parent and (ids.get(span.parent.span_id) or f"{span.parent.span_id:016x}"),
                "times": (span.start_time, span.end_time),
                "status": (span.status.status_code.name, span.status.description),
                "attributes": dict(span.attributes or {}),
            }
            for span in self.spans
        ]


class TestOtelTraces(RequestObserverTests):
    @pytest.fixture
    def exporter(self) -> Newest:
        return Newest()

    @pytest.fixture
    def observer(self, exporter: Newest) -> OtelTraces:
        return OtelTraces(OtelTraces.Options("http://127.0.0.1:4318"), exporter)

    @pytest.fixture
    def recorded(self, exporter: Newest) -> Callable[[Any], Any]:
        return lambda _: exporter.found()

    @pytest.fixture
    def reference(self) -> Callable[[Sequence[RequestEvent]], Any]:
        return expected_spans


def test_a_request_has_spans_of_its_phases(collector: Collector) -> None:
    observer = traces(collector)
    observer.observe(ended())
    observer.close()
    [root] = collector.named("chat m")
    times = {span.name: (span.start_time_unix_nano, span.end_time_unix_nano) for span in collector.spans}
    assert times == {
        "chat m": (BEGUN_NS, BEGUN_NS + 10**9),
        "queue": (BEGUN_NS, BEGUN_NS + 10**9 // 4),
        "prefill": (BEGUN_NS + 10**9 // 4, BEGUN_NS + 10**9 // 2),
        "decode": (BEGUN_NS + 10**9 // 2, BEGUN_NS + 10**9),
    }
    assert {span.parent_span_id for span in collector.spans if span is not root} == {root.span_id}
    assert len({span.trace_id for span in collector.spans}) == 1
    assert root.parent_span_id == b""
    assert collector.services == {"llmfw"}
    assert collector.paths == ["/v1/traces"]


def test_attributes_follow_the_conventions(collector: Collector) -> None:
    observer = traces(collector)
    observer.observe(ended())
    [root] = collector.named("chat m")
    assert values(root.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "llmfw",
        "gen_ai.request.model": "m",
        "gen_ai.request.max_tokens": 16,
        "gen_ai.response.id": "chatcmpl-1-0",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.response.time_to_first_chunk": 0.5,
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.output_tokens": 7,
        "llmfw.class": "live",
        "llmfw.restarts": 0,
        "llmfw.tenant": "alice",
    }


def test_the_client_s_span_is_the_parent(collector: Collector) -> None:
    observer = traces(collector)
    observer.observe(ended(traceparent=f"00-{TRACE}-{PARENT}-01"))
    [root] = collector.named("chat m")
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, PARENT)


def test_traces_that_clients_leave_out_are_kept_back(collector: Collector) -> None:
    observer = traces(collector)
    observer.observe(ended(traceparent=f"00-{TRACE}-{PARENT}-00"))
    assert collector.spans == []


def test_errors_have_a_class_and_no_message(collector: Collector) -> None:
    observer = traces(collector)
    observer.observe(ended("error", traceparent=""))
    [root] = collector.named("chat m")
    assert (root.status.code, root.status.message) == (2, "EngineError")
    assert values(root.attributes)["error.type"] == "EngineError"
    assert "it failed" not in str(collector.spans)


def test_users_that_clients_name_are_left_out(collector: Collector) -> None:
    observer = traces(collector)
    observer.observe(ended(tenant="user", tenant_is_key=False))
    assert "llmfw.tenant" not in values(collector.named("chat m")[0].attributes)


def test_many_spans_are_sent_in_several_messages(collector: Collector) -> None:
    observer = traces(collector)
    observer.observe([event for _ in range(300) for event in ended()])
    assert len(collector.spans) == 1200
    assert len(collector.paths) == 3


def test_a_collector_that_refuses_is_a_failure(collector: Collector) -> None:
    observer = traces(collector, timeout_s=0.5)
    collector.status = 400
    with pytest.raises(ConnectionError, match="did not take 4 spans"):
        observer.observe(ended())
    collector.status = 200
    observer.observe(ended())
    assert len(collector.spans) == 4  # what was lost is not sent again


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "grpc://a:4317", "http://", "nonsense"])
def test_an_endpoint_must_be_a_url(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=f"{endpoint!r}; it must be a URL such as"):
        OtelTraces(OtelTraces.Options(endpoint=endpoint))


@pytest.mark.parametrize("path", ["", "/", "/v1/traces"])
def test_the_path_of_traces_is_added(collector: Collector, path: str) -> None:
    observer = traces(collector, endpoint=collector.url + path)
    observer.observe(ended())
    assert collector.paths == ["/v1/traces"]


def test_the_service_can_be_named(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    traces(collector, service="a").observe(ended())
    monkeypatch.setenv("OTEL_SERVICE_NAME", "b")
    traces(collector, service="a").observe(ended())
    assert collector.services == {"a", "b"}
