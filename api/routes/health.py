"""GET /health: whether requests can be answered. Costs no generation."""

from __future__ import annotations

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from llmfw.core.client.client import EngineClient
from llmfw.core.errors import EngineDeadError

from ..operation import describe

PATH = "/health"


def health_routes(client: EngineClient) -> list[HTTPRouteHandler]:
    """Return the handlers."""

    @get(PATH, opt=describe("Whether requests can be answered.", reply=dict[str, str]))
    async def health() -> ASGIApp:
        if client.failure is not None:
            raise EngineDeadError(client.failure)
        return ASGIResponse(body=b'{"status":"ok"}', media_type="application/json")

    return [health]
