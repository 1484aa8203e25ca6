"""The bundled routers: `prefix` (default), `load`, `round-robin` and `session`."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_routers(register: Register) -> None:
    register(
        "prefix",
        "llmfw.plugins.routers.prefix:Prefix",
        summary="fewest prompt tokens to compute, by the prefix caches",
    )
    register("load", "llmfw.plugins.routers.load:Load", summary="fewest prompt tokens to compute")
    register("round-robin", "llmfw.plugins.routers.round_robin:RoundRobin", summary="one after the other")
    register("session", "llmfw.plugins.routers.session:Session", summary="the same one for each tenant")
