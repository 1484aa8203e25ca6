"""Routes below /admin that start and end the work of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.admin.service import AdminService
from llmfw.api.health.usable import not_failed
from llmfw.api.http.body import decode_checked, report_ignored
from llmfw.api.lifecycle.drain import Drain
from llmfw.api.lifecycle.reloading import Reloading
from llmfw.api.schemas.lifecycle import (
    DrainReply,
    DrainRequest,
    ReloadReply,
    ReloadRequest,
    SleepReply,
    SleepRequest,
)
from llmfw.api.server.limits import SMALL_BODY_BYTES
from llmfw.api.text.by_model import ByModel
from llmfw.core.base.control import MemoryInfo
from llmfw.core.base.errors import RequestError
from llmfw.core.interfaces.operation import describe

from .respond import json_response, model_in, read_json, read_nothing

MAX_WAIT_S = 3600.0
"""Longest time for which /admin/drain and /admin/sleep wait for running requests, in seconds."""


def lifecycle_routes(
    drain: Drain, reloading: Reloading, models: ByModel[AdminService], *, strict: bool = False
) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/admin/drain`, `/admin/reload`, `/admin/sleep` and `/admin/wake`.

    Args:
        models: services of the models. `?model=NAME` chooses one for sleep and wake; else all sleep and wake.
        strict: whether to reject requests with fields that would be ignored.
    """
    return [*_server_routes(drain, reloading, strict), *_engine_routes(drain, models, strict)]


def _server_routes(drain: Drain, reloading: Reloading, strict: bool) -> list[HTTPRouteHandler]:
    @post(
        "/admin/drain",
        status_code=200,
        request_max_body_size=SMALL_BODY_BYTES,
        opt=describe(
            "Refuse new requests, wait for those that run, and end the server.",
            scope="admin",
            body=DrainRequest,
            reply=DrainReply,
        ),
    )
    async def begin_drain(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await _read_any(request), DrainRequest)
        headers = report_ignored(ignored, strict)
        drain.begin(None if body.timeout_s is None else checked_timeout(body.timeout_s))
        return json_response(DrainReply(num_open=drain.num_open, timeout_s=drain.timeout_s), headers)

    @post(
        "/admin/reload",
        status_code=200,
        request_max_body_size=SMALL_BODY_BYTES,
        opt=describe(
            "Read the files of keys and certificates again, and set the log level.",
            scope="admin",
            body=ReloadRequest,
            reply=ReloadReply,
        ),
    )
    async def reload(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await _read_any(request), ReloadRequest)
        headers = report_ignored(ignored, strict)
        return json_response(await reloading.reload(body), headers)

    return [begin_drain, reload]


def _engine_routes(drain: Drain, models: ByModel[AdminService], strict: bool) -> list[HTTPRouteHandler]:
    @post(
        "/admin/sleep",
        status_code=200,
        request_max_body_size=SMALL_BODY_BYTES,
        opt=describe(
            "Release the memory of the engine, and refuse generation.",
            scope="admin",
            body=SleepRequest,
            reply=SleepReply,
            query={"model": str},
        ),
    )
    async def sleep(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await _read_any(request), SleepRequest)
        headers = report_ignored(ignored, strict)
        timeout_s = checked_timeout(drain.timeout_s if body.timeout_s is None else body.timeout_s)
        chosen = _chosen(models, model_in(request))
        memory = await asyncio.gather(*(admin.sleep(timeout_s) for admin in chosen))
        return json_response(_reply("asleep", memory), headers)

    @post(
        "/admin/wake",
        status_code=200,
        opt=describe(
            "Load the model of an engine that sleeps again.",
            scope="admin",
            reply=SleepReply,
            query={"model": str},
        ),
    )
    async def wake(request: Request[Any, Any, Any]) -> ASGIApp:
        headers = await read_nothing(request, strict)
        memory = await asyncio.gather(*(admin.wake() for admin in _chosen(models, model_in(request))))
        return json_response(_reply("awake", memory), headers)

    return [sleep, wake]


def checked_timeout(timeout_s: float) -> float:
    """Return a time to wait for running requests, in seconds; raise RequestError if it is not allowed."""
    if not 0 <= timeout_s <= MAX_WAIT_S:
        raise RequestError(
            f"timeout_s is {timeout_s:g}; it must be from 0 to {MAX_WAIT_S:g}", param="timeout_s"
        )
    return timeout_s


def _chosen(models: ByModel[AdminService], model: str | None) -> list[AdminService]:
    """Return the service of the model with a name; if there is no name, those of all whose engines have not failed."""
    return not_failed(models) if model is None else [models.of(model)]


def _reply(status: Literal["asleep", "awake"], memory: Sequence[MemoryInfo]) -> SleepReply:
    return SleepReply(
        status=status,
        host_bytes=sum(each.host_bytes for each in memory),
        device_bytes=sum(each.device_bytes for each in memory),
    )


async def _read_any(request: Request[Any, Any, Any]) -> bytes:
    """Return the body of a request. If the body is empty, return an empty JSON object."""
    raw = await read_json(request, any_type=True)
    return raw if raw.strip() else b"{}"
