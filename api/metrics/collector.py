"""Collects the metric families of one scrape for prometheus_client.

prometheus_client calls `collect` synchronously, but the engine answers asynchronously. So each scrape creates
a collector from statistics that were fetched before. Does not depend on HTTP or on text formats.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from llmfw.core.base.engine_info import ComponentUse, EngineInfo, EngineStats

from .batch_families import BatchProgress, batch_families
from .component_families import component_families
from .engine_families import engine_families

logger = logging.getLogger(__name__)


class ServerCollector(Collector):
    """Metrics of the API process and, if the engine answered, of the engine.

    Args:
        uses: totals of the calls of plugins' components.
        num_restarts: restarts of the engine since the server started.
        engine: the engine's fixed properties and its statistics; None if it did not answer.
        batches: the batch jobs; None: their store did not answer, or there is none.
        own: further families of the server.
        observers: families of observers. One whose name is taken is left out.
    """

    def __init__(
        self,
        uses: Sequence[ComponentUse],
        num_restarts: int,
        engine: tuple[EngineInfo, EngineStats] | None,
        batches: BatchProgress | None = None,
        *,
        own: Sequence[Metric] = (),
        observers: Sequence[Metric] = (),
    ) -> None:
        self._uses = uses
        self._num_restarts = num_restarts
        self._engine = engine
        self._batches = batches
        self._own = own
        self._observers = observers

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families in the order in which they are shown."""
        names = set()
        for family in self._server():
            names.add(family.name)
            yield family
        for family in self._observers:
            if family.name in names:
                logger.debug("A metric %r of an observer is left out: the name is taken", family.name)
                continue
            names.add(family.name)
            yield family

    def _server(self) -> Iterator[Metric]:
        yield from self._own
        yield from component_families(self._uses)
        yield CounterMetricFamily(
            "llmfw_engine_restarts_total",
            "Times that the engine process was started again after it had died or hung.",
            self._num_restarts,
        )
        if self._engine is not None:
            yield from engine_families(*self._engine)
        if self._batches is not None:
            yield from batch_families(self._batches)
