"""GET /openapi.json: the OpenAPI document of this server's routes."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from llmfw.api.http.openapi import openapi_document
from llmfw.core.interfaces.operation import describe


def openapi_routes(*, needs_key: bool, root_path: str = "") -> list[HTTPRouteHandler]:
    """Return the route handlers of `/openapi.json`.

    Args:
        needs_key: whether clients must send an API key.
        root_path: path below which clients reach the routes; "": none.
    """

    @get("/openapi.json", opt=describe("Return this OpenAPI document.", scope="models", reply=dict[str, Any]))
    async def openapi(request: Request[Any, Any, Any]) -> ASGIApp:
        document = openapi_document(request.app, needs_key=needs_key, root_path=root_path)
        return ASGIResponse(body=msgspec.json.encode(document), media_type="application/json")

    return [openapi]
