"""GET /metrics: the server's figures for Prometheus, in its text format or as OpenMetrics.

prometheus_client writes both; `metrics.collector` says which figures there are.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from llmfw.api.http.operation import describe
from llmfw.api.metrics.collector import ServerCollector
from llmfw.core.base.errors import EngineError
from llmfw.core.client.client import EngineClient
from llmfw.core.plugin.calls import ComponentLedger

PATH = "/metrics"
PATIENCE_S = 5.0  # with an engine in the middle of a long step


def metrics_routes(client: EngineClient, ledger: ComponentLedger) -> list[HTTPRouteHandler]:
    """Return the handlers.

    Args:
        ledger: of the components in this process.
    """

    @get(PATH, opt=describe("Figures for Prometheus.", reply=str, media_type="text/plain"))
    async def metrics(request: Request[Any, Any, Any]) -> ASGIApp:
        encode, content_type = encoder_for(request.headers.get("accept", ""))
        uses, engine = ledger.uses(), None
        with contextlib.suppress(EngineError, TimeoutError):
            stats = await asyncio.wait_for(client.stats(), PATIENCE_S)
            uses, engine = uses + stats.component_uses, (client.info, stats)
        registry = CollectorRegistry()
        registry.register(ServerCollector(uses, client.num_restarts, engine))
        # As a header: to a media type of text ASGIResponse would add its charset once more.
        return ASGIResponse(body=encode(registry), headers={"content-type": content_type})

    return [metrics]


def encoder_for(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """Return what writes the format that an Accept header asks for, and the reply's content type.

    Args:
        accept: the header's value; what is not understood gets the text format 0.0.4.
    """
    try:
        return choose_encoder(accept)
    except TypeError:  # of a version that is no number; prometheus_client 0.26 compares it with numbers
        return choose_encoder("")
