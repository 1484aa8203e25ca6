"""GET /metrics: the server's metrics for Prometheus, in its text format or as OpenMetrics.

prometheus_client writes both formats; `metrics.collector` collects the metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from llmfw.api.batches.service import BatchService
from llmfw.api.media.counts import ImageCounts, together
from llmfw.api.metrics.batch_families import BatchProgress
from llmfw.api.metrics.build_info import build_family
from llmfw.api.metrics.collector import ServerCollector
from llmfw.api.metrics.engine_families import EngineKey, Engines, continued_family
from llmfw.api.metrics.http_requests import HTTPRequests
from llmfw.api.metrics.image_families import image_families
from llmfw.api.metrics.router_families import router_families
from llmfw.api.text.by_model import ByModel
from llmfw.core.base.engine_info import EngineInfo, EngineStats
from llmfw.core.base.errors import EngineError, LLMFWError, NotReadyError
from llmfw.core.client.client import EngineClient
from llmfw.core.client.observers import Observers
from llmfw.core.interfaces.operation import describe
from llmfw.core.plugin.calls import ComponentLedger

PATH = "/metrics"
PATIENCE_S = 3.0
"""Seconds to wait for the statistics of an engine, which may be in a long step. Less than Prometheus waits for a scrape:
otherwise a silent engine looks like a silent server."""


def metrics_routes(
    clients: ByModel[EngineClient],
    ledger: ComponentLedger,
    batches: BatchService,
    http: HTTPRequests,
    observers: Observers,
    images: Sequence[ImageCounts] = (),
) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/metrics`.

    Args:
        clients: clients of the models' engines.
        ledger: ledger of the calls of this process's components.
        http: counts of HTTP requests.
        observers: observers, which may have metrics of their own.
        images: counts of images of the models that read them.
    """
    build = build_family()

    @get(
        PATH,
        opt=describe("Return metrics for Prometheus.", scope="metrics", reply=str, media_type="text/plain"),
    )
    async def metrics(request: Request[Any, Any, Any]) -> ASGIApp:
        encode, content_type = encoder_for(request.headers.get("accept", ""))
        stats, jobs, others = await asyncio.gather(
            _all_stats(clients), _batch_progress(batches), observers.metrics()
        )
        uses = [*ledger.uses(), *(use for each in stats.values() for use in each.component_uses)]
        registry = CollectorRegistry()
        own = [
            build,
            http.family(),
            continued_family(sum(client.num_continued for client in clients)),
            *(family for client in clients for family in router_families(client.replicas)),
            *image_families(together(images)),
        ]
        registry.register(
            ServerCollector(
                uses,
                _restarts(clients),
                (_infos(clients, stats), stats) if stats else None,
                jobs,
                own=own,
                observers=others,
            )
        )
        # As a header, because ASGIResponse would add a second charset to a text media type.
        return ASGIResponse(body=encode(registry), headers={"content-type": content_type})

    return [metrics]


def _by_label(clients: ByModel[EngineClient]) -> dict[str, EngineClient]:
    """Return served name of each model, or "" for the only one → its client."""
    names = clients.served_names if len(clients) > 1 else [""]
    return dict(zip(names, clients, strict=True))


def _infos(clients: ByModel[EngineClient], stats: Engines) -> dict[str, EngineInfo]:
    """Return the properties of the models' engines that have answered."""
    answered = {key.model for key in stats}
    return {model: client.info for model, client in _by_label(clients).items() if model in answered}


async def _all_stats(clients: ByModel[EngineClient]) -> Engines:
    """Return the statistics of each engine. Omits engines that are late."""
    found = await asyncio.gather(
        *(_engine_stats(model, client) for model, client in _by_label(clients).items())
    )
    return {key: stats for each in found for key, stats in each.items()}


async def _engine_stats(model: str, client: EngineClient) -> dict[EngineKey, EngineStats]:
    with contextlib.suppress(EngineError, NotReadyError, TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            if not (states := client.replicas):
                return {EngineKey(model): await client.stats()}
            found = zip(states, await client.replica_stats(), strict=False)
            return {EngineKey(model, str(state.number)): stats for state, stats in found if stats is not None}
    return {}


def _restarts(clients: ByModel[EngineClient]) -> dict[EngineKey, int]:
    """Return how often each engine was restarted."""
    found: dict[EngineKey, int] = {}
    for model, client in _by_label(clients).items():
        several = {EngineKey(model, str(state.number)): state.num_restarts for state in client.replicas}
        found |= several or {EngineKey(model): client.num_restarts}
    return found


async def _batch_progress(batches: BatchService) -> BatchProgress | None:
    with contextlib.suppress(LLMFWError, TimeoutError):
        return BatchProgress(await asyncio.wait_for(batches.unfinished(), PATIENCE_S), batches.counts)
    return None


def encoder_for(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """Return the encoder for the format that an Accept header requests, and the reply's content type.

    Args:
        accept: value of the header. For an unknown format, the encoder of text format 0.0.4 is returned.
    """
    try:
        return choose_encoder(accept)
    except TypeError:  # prometheus_client 0.26 raises it if the header has a version that is not a number
        return choose_encoder("")
