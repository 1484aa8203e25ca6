"""Collects the metric families of one scrape for prometheus_client.

prometheus_client calls `collect` synchronously, but the engine answers asynchronously. So each scrape creates
a collector from statistics that were fetched before. Does not depend on HTTP or on text formats.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from llmfw.core.base.engine_info import ComponentUse, EngineInfo

from .batch_families import BatchProgress, batch_families
from .component_families import component_families
from .engine_families import EngineKey, Engines, engine_families, restarts_family

logger = logging.getLogger(__name__)


class ServerCollector(Collector):
    """Metrics of the API process and of the engines that answered.

    Args:
        uses: totals of the calls of plugins' components.
        restarts: engine → its restarts since the server started.
        engines: fixed properties of each model's engines, and the statistics of each engine; None if none
            answered.
        batches: the batch jobs; None: their store did not answer, or there is none.
        own: further families of the server.
        observers: families of observers. A family whose name is taken is left out.
    """

    def __init__(
        self,
        uses: Sequence[ComponentUse],
        restarts: Mapping[EngineKey, int],
        engines: tuple[Mapping[str, EngineInfo], Engines] | None,
        batches: BatchProgress | None = None,
        *,
        own: Sequence[Metric] = (),
        observers: Sequence[Metric] = (),
    ) -> None:
        self._uses = uses
        self._restarts = restarts
        self._engines = engines
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
        yield restarts_family(self._restarts)
        if self._engines is not None:
            yield from engine_families(*self._engines)
        if self._batches is not None:
            yield from batch_families(self._batches)
