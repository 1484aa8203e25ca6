"""Replaces the weights of all engines of a pool, or of none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from llmfw.core.base.control import Answer, MemoryInfo
from llmfw.core.base.errors import EngineDeadError, EngineRestartingError, LLMFWError
from llmfw.core.base.weights_command import LoadWeights, WeightsInfo

from ..client import EngineClient
from ..weights_swap import ServedWeights, unsupported
from .merged import merged_memory
from .pool_sleep import PoolSleep
from .replica import Replica

logger = logging.getLogger(__name__)

POLL_S = 0.05
"""Seconds between two tries to bring an engine back that is being restarted."""


class PoolWeights:
    """Replaces the weights of one engine after another, while no engine takes requests.

    So all engines that take requests have the same weights at any time.

    Args:
        sleep: holds requests back.
        served: checkpoint of the engines that start from now on; None: it cannot be replaced.
        changed: called once all engines have the new weights.
    """

    def __init__(self, sleep: PoolSleep, served: ServedWeights | None, changed: Callable[[], None]) -> None:
        self._sleep = sleep
        self._served = served
        self._changed = changed

    async def load(self, pool: EngineClient, num_live: Callable[[], int], command: LoadWeights) -> Answer:
        """Load the weights on all engines.

        Raises:
            ConflictError: requests still run, or an engine is being restarted; all weights stay.
            NotReadyError: the engines sleep.
            EngineError: an engine could not load the checkpoint; all engines have the previous weights. Engines that
                cannot load these again take no more requests.
        """
        served = self._served
        if served is None:
            raise unsupported()
        async with self._sleep.entered(pool, num_live, command) as replicas:
            version = pool.info.weight_version
            try:
                answers = [
                    await _load(replica, LoadWeights(command.path, aborts=True)) for replica in replicas
                ]
            except LLMFWError:
                back = LoadWeights(served.path, aborts=True, version=version)
                await asyncio.gather(*(_bring_back(replica, back) for replica in replicas))
                raise
            served.path = command.path
            self._changed()
        memory = merged_memory([MemoryInfo(each.host_bytes, each.device_bytes) for each in answers])
        return WeightsInfo(command.path, answers[0].version, memory.host_bytes, memory.device_bytes)


async def _load(replica: Replica, command: LoadWeights) -> WeightsInfo:
    """Load weights on one engine. What still runs there is deferrable, or was to be ended."""
    answer = await replica.client.control(command)
    assert isinstance(answer, WeightsInfo)
    logger.info("Engine %d serves weights %s", replica.index, answer.version)
    return answer


async def _bring_back(replica: Replica, command: LoadWeights) -> None:
    """Load the previous weights on an engine, unless it has them. Returns once it has them or has failed for good."""
    client = replica.client
    while client.checkpoint != command.path and client.failure is None:
        try:
            await _load(replica, command)
        except (EngineDeadError, EngineRestartingError) as error:
            # It has died meanwhile. A restart would load the other weights again.
            logger.warning("Engine %d does not take the previous weights yet: %s", replica.index, error)
            await asyncio.sleep(POLL_S)
