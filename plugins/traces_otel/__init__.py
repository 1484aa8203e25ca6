"""The bundled observer `otel`."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_observers(register: Register) -> None:
    register(
        "otel",
        "llmfw.plugins.traces_otel.otel_traces:OtelTraces",
        summary="a trace of each request, sent by OpenTelemetry's protocol",
        needs=("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    )
