"""The observer `otel`: a span for each request, with spans for its phases, sent by OTLP over HTTP.

chat demo      [ ------------------------------------------ ]
queue          [ ---- ]
prefill               [ -------- ]
decode                           [ ------------------------ ]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from llmfw.core import ConfigError, RequestEnded, RequestEvent, RequestObserver

from .finished_spans import FinishedSpans
from .request_spans import RequestSpans

PATH = "/v1/traces"
MOST_SPANS = 512
"""Spans in one message to the collector, as in OpenTelemetry's own processors."""


class OtelTraces(RequestObserver):
    """Sends spans in the observer's thread.

    Events wait while the collector does not answer. If too many events wait, events are dropped, and counted
    in `llmfw_observer_dropped_events_total`.
    """

    class Options(RequestObserver.Options, frozen=True):
        """
        Attributes:
            endpoint: URL of the collector, such as "http://127.0.0.1:4318"; "/v1/traces" is added if it is missing.
                Empty: what OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT says.
            service: name of the service in the traces. OTEL_SERVICE_NAME comes first.
            timeout_s: seconds to try to send spans before they are given up.
        """

        endpoint: str = ""
        service: str = "llmfw"
        timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0

    options: Options

    def __init__(self, options: Options, exporter: SpanExporter | None = None) -> None:
        """Prepare the observer. Raise ConfigError if the endpoint is not an HTTP URL.

        Args:
            exporter: exporter that sends the spans; None: built from the options.
        """
        super().__init__(options)
        endpoint = _traces_url(options.endpoint) if options.endpoint else None
        # Headers may hold secrets, so OpenTelemetry's variables give headers, certificates and compression.
        self._exporter = exporter or OTLPSpanExporter(endpoint, timeout=options.timeout_s)
        self._spans = FinishedSpans()
        resource = Resource.create({SERVICE_NAME: options.service}).merge(_from_environment())
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(self._spans)
        self._requests = RequestSpans(provider.get_tracer("llmfw"))

    def observe(self, events: Sequence[RequestEvent]) -> None:
        for event in events:
            if isinstance(event, RequestEnded):
                self._requests.record(event)
        self._send()

    def close(self) -> None:
        self._exporter.shutdown()

    def _send(self) -> None:
        """Send the spans; raise ConnectionError if the collector does not take them."""
        spans = self._spans.take()
        for start in range(0, len(spans), MOST_SPANS):
            if self._exporter.export(spans[start : start + MOST_SPANS]) is not SpanExportResult.SUCCESS:
                raise ConnectionError(f"the collector did not take {len(spans) - start} spans")


def _traces_url(endpoint: str) -> str:
    """Return the URL that takes traces, from the URL of a collector."""
    parts = urlsplit(endpoint)
    if parts.username or parts.password or parts.query:
        raise ConfigError(
            "the endpoint of OpenTelemetry holds a user, a password or a query, which would be in the log; give credentials "
            "by the variable OTEL_EXPORTER_OTLP_HEADERS"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"the endpoint of OpenTelemetry is {endpoint!r}; it must be a URL such as http://127.0.0.1:4318"
        )
    return endpoint if parts.path.endswith(PATH) else endpoint.rstrip("/") + PATH


def _from_environment() -> Resource:
    """Return the attributes from OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME, without the defaults."""
    from opentelemetry.sdk.resources import OTELResourceDetector

    return OTELResourceDetector().detect()
