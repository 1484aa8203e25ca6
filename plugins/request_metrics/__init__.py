"""The bundled observer `request-metrics`."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_observers(register: Register) -> None:
    register(
        "request-metrics",
        "llmfw.plugins.request_metrics.request_metrics:RequestMetrics",
        summary="histograms of latencies and tokens of requests, and refusals, at /metrics",
        needs=("prometheus_client",),
    )
