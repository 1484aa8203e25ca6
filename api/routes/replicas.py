"""Routes by which administrators list, drain, add and remove engines. `admin.access` checks who may use them."""

from __future__ import annotations

from typing import Any

from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.admin.replicas import ReplicaService
from llmfw.api.lifecycle.drain import Drain
from llmfw.core.base.errors import RequestError
from llmfw.core.base.replica_commands import ReplicaInfo, ReplicaList
from llmfw.core.interfaces.operation import describe

from .lifecycle import MAX_WAIT_S
from .respond import json_response, read_nothing


def replica_routes(replicas: ReplicaService, drain: Drain, *, strict: bool = False) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/admin/replicas`.

    Args:
        drain: drain of the server. Its timeout also applies to the requests of an engine that is removed.
        strict: whether to reject requests with fields that would be ignored.
    """
    return [*_member_routes(replicas, drain, strict), *_drain_routes(replicas, strict)]


def _member_routes(replicas: ReplicaService, drain: Drain, strict: bool) -> list[HTTPRouteHandler]:
    @get("/admin/replicas", opt=describe("List the engines.", scope="admin", reply=ReplicaList))
    async def list_replicas() -> ASGIApp:
        return json_response(await replicas.list())

    @post(
        "/admin/replicas",
        status_code=200,
        opt=describe("Start another engine, up to --max-replicas.", scope="admin", reply=ReplicaInfo),
    )
    async def add_replica(request: Request[Any, Any, Any]) -> ASGIApp:
        headers = await read_nothing(request, strict)
        return json_response(await replicas.add(), headers)

    @delete(
        "/admin/replicas/{index:str}",
        status_code=200,
        opt=describe(
            "Drain an engine, and end it.", scope="admin", reply=ReplicaInfo, query={"timeout_s": float}
        ),
    )
    async def remove_replica(index: str, request: Request[Any, Any, Any]) -> ASGIApp:
        timeout_s = _timeout_of(request.query_params.get("timeout_s"), drain.timeout_s)
        return json_response(await replicas.remove(index, timeout_s))

    return [list_replicas, add_replica, remove_replica]


def _drain_routes(replicas: ReplicaService, strict: bool) -> list[HTTPRouteHandler]:
    @post(
        "/admin/replicas/{index:str}/drain",
        status_code=200,
        opt=describe("Send an engine no new requests.", scope="admin", reply=ReplicaInfo),
    )
    async def drain_replica(index: str, request: Request[Any, Any, Any]) -> ASGIApp:
        headers = await read_nothing(request, strict)
        return json_response(await replicas.drain(index), headers)

    @post(
        "/admin/replicas/{index:str}/undrain",
        status_code=200,
        opt=describe("Send a drained engine requests again.", scope="admin", reply=ReplicaInfo),
    )
    async def undrain_replica(index: str, request: Request[Any, Any, Any]) -> ASGIApp:
        headers = await read_nothing(request, strict)
        return json_response(await replicas.undrain(index), headers)

    return [drain_replica, undrain_replica]


def _timeout_of(text: str | None, default: float) -> float:
    if text is None:
        return min(default, MAX_WAIT_S)
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = -1.0
    if not 0 <= timeout_s <= MAX_WAIT_S:
        raise RequestError(
            f"timeout_s is {text[:100]!r}; it must be a number from 0 to {MAX_WAIT_S:g}", param="timeout_s"
        )
    return timeout_s
