"""The bundled observer: `request-log`."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_observers(register: Register) -> None:
    register(
        "request-log",
        "llmfw.plugins.request_log.request_log:RequestLog",
        summary="a line of JSON for each request that has ended",
    )
