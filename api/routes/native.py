"""SGLang's native route: POST /generate."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.http.body import decode_native, report_ignored
from llmfw.api.native.service import NativeService
from llmfw.api.schemas.native import GenerateReply, GenerateRequest
from llmfw.core.interfaces.operation import describe

from .respond import event_stream, json_response, read_json, while_connected


def native_routes(native: NativeService, *, strict: bool = False) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/generate`.

    Args:
        strict: whether to reject requests with fields that would be ignored.
    """

    @post(
        "/generate",
        status_code=200,
        opt=describe(
            "Generate text from a prompt (SGLang's API).",
            body=GenerateRequest,
            reply=GenerateReply,
            chunk=GenerateReply,
        ),
    )
    async def generate(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_native(await read_json(request))
        headers = report_ignored(ignored, strict)

        async def frames() -> AsyncGenerator[bytes, None]:
            return native.stream(await native.start(body))

        async def reply() -> GenerateReply | list[GenerateReply]:
            return await native.reply(await native.start(body))

        if body.stream:
            return await event_stream(request.receive, frames(), headers)
        return json_response(await while_connected(request.receive, reply()), headers)

    return [generate]
