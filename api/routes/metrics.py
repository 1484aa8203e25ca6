"""GET /metrics: the server's metrics for Prometheus, in its text format or as OpenMetrics.

prometheus_client writes both formats; `metrics.collector` collects the metrics.
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

from llmfw.api.metrics.collector import ServerCollector
from llmfw.core.base.errors import EngineError
from llmfw.core.client.client import EngineClient
from llmfw.core.interfaces.operation import describe
from llmfw.core.plugin.calls import ComponentLedger

PATH = "/metrics"
PATIENCE_S = 5.0  # seconds to wait for the statistics of an engine, which may be in a long step


def metrics_routes(client: EngineClient, ledger: ComponentLedger) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/metrics`.

    Args:
        ledger: ledger of the calls of this process's components.
    """

    @get(
        PATH,
        opt=describe("Return metrics for Prometheus.", scope="metrics", reply=str, media_type="text/plain"),
    )
    async def metrics(request: Request[Any, Any, Any]) -> ASGIApp:
        encode, content_type = encoder_for(request.headers.get("accept", ""))
        uses, engine = ledger.uses(), None
        with contextlib.suppress(EngineError, TimeoutError):
            stats = await asyncio.wait_for(client.stats(), PATIENCE_S)
            uses, engine = uses + stats.component_uses, (client.info, stats)
        registry = CollectorRegistry()
        registry.register(ServerCollector(uses, client.num_restarts, engine))
        # As a header, because ASGIResponse would add a second charset to a text media type.
        return ASGIResponse(body=encode(registry), headers={"content-type": content_type})

    return [metrics]


def encoder_for(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """Return the encoder for the format that an Accept header requests, and the reply's content type.

    Args:
        accept: value of the header. For an unknown format, the encoder of text format 0.0.4 is returned.
    """
    try:
        return choose_encoder(accept)
    except TypeError:  # prometheus_client 0.26 raises it if the header has a version that is not a number
        return choose_encoder("")
