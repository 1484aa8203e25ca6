"""POST /v1/completions."""

from __future__ import annotations

from functools import partial
from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive

from llmfw.api.completions.service import CompletionService
from llmfw.api.http.body import decode_generation, report_ignored
from llmfw.api.schemas.completions import Completion
from llmfw.api.text.by_model import ByModel
from llmfw.api.text.extras import includes_usage
from llmfw.core.interfaces.operation import describe

from .respond import answer, read_json


def completion_routes(
    services: ByModel[CompletionService], *, strict: bool = False
) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/v1/completions`.

    Args:
        services: services of the models.
        strict: whether to reject requests with fields that would be ignored.
    """

    @post(
        "/v1/completions",
        status_code=200,
        opt=describe(
            "Create a completion.", body=services.first.body_type, reply=Completion, chunk=Completion
        ),
    )
    async def create_completion(request: Request[Any, Any, Any]) -> ASGIApp:
        return await answer_completion(services, await read_json(request), request.receive, strict=strict)

    return [create_completion]


async def answer_completion(
    services: ByModel[CompletionService], raw: bytes, receive: Receive, *, strict: bool
) -> ASGIApp:
    """Answer a body of this route.

    Args:
        services: services of the models.
        receive: `receive` of the request, whose body has been read.
        strict: whether to reject a body with fields that would be ignored.
    """
    body, ignored = decode_generation(raw, services.first.body_type)
    headers = report_ignored(ignored, strict)
    include_usage = includes_usage(body.stream_options)
    completions = services.of(body.model)
    return await answer(
        receive,
        completions.start(body),
        reply=completions.reply,
        stream=partial(completions.stream, include_usage=include_usage),
        streams=body.stream,
        headers=headers,
    )
