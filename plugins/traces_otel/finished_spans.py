"""Collects the spans that have ended."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor


class FinishedSpans(SpanProcessor):
    """Keeps sampled spans that have ended, until `take` returns them."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span. Called by the SDK."""
        if span.context is not None and span.context.trace_flags.sampled:
            self._spans.append(span)

    def take(self) -> list[ReadableSpan]:
        """Return the spans since the last call."""
        spans, self._spans = self._spans, []
        return spans
