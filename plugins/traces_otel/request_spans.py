"""Makes the spans of an ended request. Attributes follow OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from llmfw.core import RequestEnded, RequestStarted


class RequestSpans:
    """Records the spans of requests.

    Spans contain no request text, and no error messages, which may quote request text.

    Args:
        tracer: creates the spans.
    """

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    def record(self, event: RequestEnded) -> None:
        """Record the span of a request, and the spans of its phases.

        If the client sent a span, it is the parent.
        """
        started = event.started
        begun, operation = started.at, _operation(started)
        span = self._tracer.start_span(
            f"{operation} {started.model}".rstrip(),
            self._propagator.extract({"traceparent": started.traceparent}, Context()),
            trace.SpanKind.SERVER,
            _attributes(event, operation),
            start_time=_ns(begun),
        )
        if event.first_token_s is not None:
            queued = min(event.queued_s, event.first_token_s)
            inside = trace.set_span_in_context(span, Context())
            self._phase("queue", inside, begun, begun + queued)
            self._phase("prefill", inside, begun + queued, begun + event.first_token_s)
            self._phase("decode", inside, begun + event.first_token_s, begun + event.duration_s)
        if event.error_kind:
            span.set_status(trace.StatusCode.ERROR, event.error_kind)
        span.end(_ns(begun + event.duration_s))

    def _phase(self, name: str, inside: Context, begun: float, ended: float) -> None:
        self._tracer.start_span(name, inside, start_time=_ns(begun)).end(_ns(max(begun, ended)))


def _operation(started: RequestStarted) -> str:
    if started.task != "generate":
        return "embeddings"
    return "chat" if started.id.startswith("chatcmpl-") else "text_completion"


def _attributes(event: RequestEnded, operation: str) -> dict[str, AttributeValue]:
    started = event.started
    found: dict[str, AttributeValue] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "llmfw",
        "gen_ai.request.model": started.model,
        "gen_ai.response.id": started.id,
        "gen_ai.response.finish_reasons": (event.finish,),
        "gen_ai.usage.input_tokens": started.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": event.cached_tokens,
        "gen_ai.usage.output_tokens": event.output_tokens,
        "llmfw.class": "deferrable" if started.deferrable else "live",
        "llmfw.restarts": event.restarts,
    }
    if started.max_tokens is not None:
        found["gen_ai.request.max_tokens"] = started.max_tokens
    if event.first_token_s is not None:
        found["gen_ai.response.time_to_first_chunk"] = event.first_token_s
    if started.tenant_is_key:
        found["llmfw.tenant"] = started.tenant
    if event.error_kind:
        found["error.type"] = event.error_kind
    return found


def _ns(seconds: float) -> int:
    whole = int(seconds)  # apart, because a float cannot hold all digits of today's time in nanoseconds
    return whole * 10**9 + round((seconds - whole) * 1e9)
