"""POST /v1/embeddings."""

from __future__ import annotations

from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.embeddings.embeddings import EmbeddingService
from llmfw.api.http.body import decode_checked, report_ignored
from llmfw.api.http.operation import describe
from llmfw.api.schemas.embeddings import EmbeddingList, EmbeddingRequest

from .respond import json_response, read_json, while_connected


def embedding_routes(embeddings: EmbeddingService, *, strict: bool = False) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/v1/embeddings`.

    Args:
        strict: whether to reject requests with fields that would be ignored.
    """

    @post(
        "/v1/embeddings",
        status_code=200,
        opt=describe("Create embeddings.", body=EmbeddingRequest, reply=EmbeddingList),
    )
    async def create_embedding(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await read_json(request), EmbeddingRequest)
        reply = await while_connected(request.receive, embeddings.reply(body))
        return json_response(reply, report_ignored(ignored, strict))

    return [create_embedding]
