"""Routes below /admin that begin and end the work of the server."""

from __future__ import annotations

from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.http.body import decode_checked, report_ignored
from llmfw.api.lifecycle.drain import Drain
from llmfw.api.lifecycle.reloading import Reloading
from llmfw.api.schemas.lifecycle import DrainReply, ReloadReply, ReloadRequest
from llmfw.api.server.limits import SMALL_BODY_BYTES
from llmfw.core.interfaces.operation import describe

from .respond import json_response, read_json, read_nothing


def lifecycle_routes(drain: Drain, reloading: Reloading, *, strict: bool = False) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/admin/drain` and `/admin/reload`.

    Args:
        strict: whether to reject requests with fields that would be ignored.
    """

    @post(
        "/admin/drain",
        status_code=200,
        opt=describe(
            "Refuse new requests, wait for those that run, and end the server.",
            scope="admin",
            reply=DrainReply,
        ),
    )
    async def begin_drain(request: Request[Any, Any, Any]) -> ASGIApp:
        headers = await read_nothing(request, strict)
        drain.begin()
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
        raw = await read_json(request, any_type=True)
        body, ignored = decode_checked(raw if raw.strip() else b"{}", ReloadRequest)
        headers = report_ignored(ignored, strict)
        return json_response(await reloading.reload(body), headers)

    return [begin_drain, reload]
