"""Routes below /admin that begin and end the work of the server."""

from __future__ import annotations

from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.lifecycle.drain import Drain
from llmfw.api.schemas.lifecycle import DrainReply
from llmfw.core.interfaces.operation import describe

from .respond import json_response, read_nothing


def lifecycle_routes(drain: Drain, *, strict: bool = False) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/admin/drain`.

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

    return [begin_drain]
