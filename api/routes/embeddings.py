"""POST /v1/embeddings."""

from __future__ import annotations

from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from ..body import decode_checked, ignored_header
from ..embeddings import EmbeddingService
from ..schemas.embeddings import EmbeddingRequest
from .respond import json_response, read_json, while_connected


def embedding_routes(embeddings: EmbeddingService) -> list[HTTPRouteHandler]:
    """Return the handlers."""

    @post("/v1/embeddings", status_code=200)
    async def create_embedding(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await read_json(request), EmbeddingRequest)
        reply = await while_connected(request.receive, embeddings.reply(body))
        return json_response(reply, ignored_header(ignored))

    return [create_embedding]
