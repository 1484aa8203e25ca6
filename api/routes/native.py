"""SGLang's native route: POST /generate."""

from __future__ import annotations

from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.http.body import decode_native, report_ignored
from llmfw.api.native.service import NativeService
from llmfw.api.schemas.native import GenerateReply
from llmfw.api.text.by_model import ByModel
from llmfw.core.interfaces.operation import describe

from .respond import answer, read_json


def native_routes(services: ByModel[NativeService], *, strict: bool = False) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/generate`.

    Args:
        services: services of the models.
        strict: whether to reject requests with fields that would be ignored.
    """

    @post(
        "/generate",
        status_code=200,
        opt=describe(
            "Generate text from a prompt (SGLang's API).",
            body=services.first.body_type,
            reply=GenerateReply,
            chunk=GenerateReply,
        ),
    )
    async def generate(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_native(await read_json(request), services.first.body_type)
        headers, native = report_ignored(ignored, strict), services.of(body.model)
        return await answer(
            request.receive,
            native.start(body),
            reply=native.reply,
            stream=native.stream,
            streams=body.stream,
            headers=headers,
        )

    return [generate]
