"""Routes of probes: /health and those below it, /health_generate and /ping.

Liveness says whether a restart of the server would help, readiness whether the server takes requests. A server
with several models passes if one of them does, and its reply names the others; `?model=NAME` checks one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from litestar import HttpMethod, Request, get, route
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from llmfw.api.health.probe import Probe
from llmfw.api.health.usable import UsableModels, reason_against, reason_against_requests
from llmfw.api.lifecycle.drain import Drain
from llmfw.api.text.by_model import ByModel
from llmfw.core.base.errors import EngineDeadError
from llmfw.core.client.client import EngineClient
from llmfw.core.interfaces.operation import describe

from .respond import model_in

_QUERY = {"model": str}


def health_routes(clients: ByModel[EngineClient], drain: Drain) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/health`, those below it, `/health_generate` and SageMaker's `/ping`.

    Args:
        clients: clients of the models' engines.
    """
    models = UsableModels(clients)
    return [*_probes(models, drain), *_checks_of_the_engine(models, clients)]


def _probes(models: UsableModels, drain: Drain) -> list[HTTPRouteHandler]:
    @get(
        "/health/live",
        opt=describe("Report whether the server need not be restarted.", scope="", reply=dict[str, str]),
    )
    async def live() -> ASGIApp:
        failures = [client.failure for client in models.chosen(None).values()]
        if None not in failures:
            raise EngineDeadError(failures[0])
        return _reply({"status": "ok"})

    @get(
        "/health/ready",
        opt=describe(
            "Report whether the server takes new requests now.", scope="", reply=dict[str, str], query=_QUERY
        ),
    )
    async def ready(request: Request[Any, Any, Any]) -> ASGIApp:
        if drain.refusal is not None:
            raise drain.refusal
        chosen = models.chosen(model_in(request))
        found = models.report({name: reason_against_requests(client) for name, client in chosen.items()})
        states = [state for client in chosen.values() for state in client.replicas]
        if states:
            found["engines"] = f"{sum(state.outage is None for state in states)} of {len(states)}"
        return _reply(found)

    return [live, ready]


def _checks_of_the_engine(models: UsableModels, clients: ByModel[EngineClient]) -> list[HTTPRouteHandler]:
    probes = clients.map(Probe)

    def check(request: Request[Any, Any, Any]) -> ASGIResponse:
        chosen = models.chosen(model_in(request))
        return _reply(models.report({name: reason_against(client) for name, client in chosen.items()}))

    @get(
        "/health",
        opt=describe(
            "Report whether the server can answer requests.", scope="", reply=dict[str, str], query=_QUERY
        ),
    )
    async def health(request: Request[Any, Any, Any]) -> ASGIApp:
        return check(request)

    @route(
        "/ping",
        http_method=[HttpMethod.GET, HttpMethod.POST],
        status_code=200,
        opt=describe(
            "Report whether the server can answer requests.", scope="", reply=dict[str, str], query=_QUERY
        ),
    )
    async def ping(request: Request[Any, Any, Any]) -> ASGIApp:
        return check(request)

    @get(
        "/health_generate",
        opt=describe(
            "Check the engine by computing one token, or one vector.",
            scope="",
            reply=dict[str, str],
            query=_QUERY,
        ),
    )
    async def health_generate(request: Request[Any, Any, Any]) -> ASGIApp:
        async def reason(name: str, client: EngineClient) -> Exception | None:
            if (found := reason_against(client)) is not None:
                return found
            complaint = await probes.of(name).complaint()
            return None if complaint is None else HTTPException(complaint, status_code=503)

        chosen = models.chosen(model_in(request))
        reasons = await asyncio.gather(*(reason(*each) for each in chosen.items()))
        return _reply(models.report(dict(zip(chosen, reasons, strict=True))))

    return [health, ping, health_generate]


def _reply(found: dict[str, str]) -> ASGIResponse:
    return ASGIResponse(body=msgspec.json.encode(found), media_type="application/json")
