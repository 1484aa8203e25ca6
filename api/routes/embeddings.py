"""POST /v1/embeddings."""

from __future__ import annotations

from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive

from llmfw.api.embeddings.embeddings import EmbeddingService
from llmfw.api.http.body import decode_checked, report_ignored
from llmfw.api.schemas.embeddings import EmbeddingList, EmbeddingRequest
from llmfw.api.text.by_model import ByModel
from llmfw.core.interfaces.operation import describe

from .respond import json_response, read_json, while_connected


def embedding_routes(services: ByModel[EmbeddingService], *, strict: bool = False) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/v1/embeddings`.

    Args:
        services: services of the models.
        strict: whether to reject requests with fields that would be ignored.
    """

    @post(
        "/v1/embeddings",
        status_code=200,
        opt=describe("Create embeddings.", scope="embed", body=EmbeddingRequest, reply=EmbeddingList),
    )
    async def create_embedding(request: Request[Any, Any, Any]) -> ASGIApp:
        return await answer_embedding(services, await read_json(request), request.receive, strict=strict)

    return [create_embedding]


async def answer_embedding(
    services: ByModel[EmbeddingService], raw: bytes, receive: Receive, *, strict: bool
) -> ASGIApp:
    """Answer a body of this route.

    Args:
        services: services of the models.
        receive: `receive` of the request, whose body has been read.
        strict: whether to reject a body with fields that would be ignored.
    """
    body, ignored = decode_checked(raw, EmbeddingRequest)
    headers = report_ignored(ignored, strict)
    return json_response(await while_connected(receive, services.of(body.model).reply(body)), headers)
