"""Routes of probes: /health and those below it, /health_generate and /ping.

Liveness says whether a restart of the server would help, readiness whether the server takes requests.
"""

from __future__ import annotations

import msgspec
from litestar import HttpMethod, get, route
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from llmfw.api.health.probe import Probe
from llmfw.api.lifecycle.drain import Drain
from llmfw.core.base.errors import EngineDeadError, EngineRestartingError
from llmfw.core.client.client import EngineClient
from llmfw.core.interfaces.operation import describe


def health_routes(client: EngineClient, drain: Drain) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/health`, those below it, `/health_generate` and SageMaker's `/ping`."""
    return [*_probes(client, drain), *_checks_of_the_engine(client)]


def _probes(client: EngineClient, drain: Drain) -> list[HTTPRouteHandler]:
    @get(
        "/health/live",
        opt=describe("Report whether the server need not be restarted.", scope="", reply=dict[str, str]),
    )
    async def live() -> ASGIApp:
        if client.failure is not None:
            raise EngineDeadError(client.failure)
        return _ok()

    @get(
        "/health/ready",
        opt=describe("Report whether the server takes new requests now.", scope="", reply=dict[str, str]),
    )
    async def ready() -> ASGIApp:
        if (refusal := drain.refusal or client.refusal) is not None:
            raise refusal
        _check(client)
        return _ok(client)

    return [live, ready]


def _checks_of_the_engine(client: EngineClient) -> list[HTTPRouteHandler]:
    probe = Probe(client)

    @get(
        "/health",
        opt=describe("Report whether the server can answer requests.", scope="", reply=dict[str, str]),
    )
    async def health() -> ASGIApp:
        _check(client)
        return _ok()

    @route(
        "/ping",
        http_method=[HttpMethod.GET, HttpMethod.POST],
        status_code=200,
        opt=describe("Report whether the server can answer requests.", scope="", reply=dict[str, str]),
    )
    async def ping() -> ASGIApp:
        _check(client)
        return _ok()

    @get(
        "/health_generate",
        opt=describe(
            "Check the engine by computing one token, or one vector.", scope="", reply=dict[str, str]
        ),
    )
    async def health_generate() -> ASGIApp:
        _check(client)
        if (complaint := await probe.complaint()) is not None:
            raise HTTPException(complaint, status_code=503)
        return _ok()

    return [health, ping, health_generate]


def _check(client: EngineClient) -> None:
    if client.failure is not None:
        raise EngineDeadError(client.failure)
    if client.outage is not None:
        raise EngineRestartingError(client.outage)


def _ok(client: EngineClient | None = None) -> ASGIResponse:
    """Return the reply of a probe that succeeds.

    Args:
        client: client of the engines. If there are several, the reply has the number of engines that take
            requests.
    """
    found = {"status": "ok"}
    if client is not None and (states := client.replicas):
        found["engines"] = f"{sum(state.outage is None for state in states)} of {len(states)}"
    return ASGIResponse(body=msgspec.json.encode(found), media_type="application/json")
