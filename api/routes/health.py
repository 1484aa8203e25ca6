"""GET /health and /health_generate: report whether the server can answer requests."""

from __future__ import annotations

from litestar import get
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from llmfw.api.health.probe import Probe
from llmfw.api.http.operation import describe
from llmfw.core.base.errors import EngineDeadError, EngineRestartingError
from llmfw.core.client.client import EngineClient


def health_routes(client: EngineClient) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/health` and `/health_generate`."""
    probe = Probe(client)

    @get("/health", opt=describe("Report whether the server can answer requests.", reply=dict[str, str]))
    async def health() -> ASGIApp:
        _check(client)
        return _ok()

    @get(
        "/health_generate",
        opt=describe("Check the engine by computing one token, or one vector.", reply=dict[str, str]),
    )
    async def health_generate() -> ASGIApp:
        _check(client)
        if (complaint := await probe.complaint()) is not None:
            raise HTTPException(complaint, status_code=503)
        return _ok()

    return [health, health_generate]


def _check(client: EngineClient) -> None:
    if client.failure is not None:
        raise EngineDeadError(client.failure)
    if client.outage is not None:
        raise EngineRestartingError(client.outage)


def _ok() -> ASGIResponse:
    return ASGIResponse(body=b'{"status":"ok"}', media_type="application/json")
