"""Replaces the weights of all engines of a pool, or of none."""

from __future__ import annotations

import logging
from collections.abc import Callable

from llmfw.core.base.control import Answer, MemoryInfo
from llmfw.core.base.errors import LLMFWError
from llmfw.core.base.weights_command import LoadWeights, WeightsInfo

from ..client import EngineClient
from ..weights_swap import ServedWeights, unsupported
from .merged import merged_memory
from .pool_sleep import PoolSleep
from .replica import Replica

logger = logging.getLogger(__name__)


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
                cannot load these again are closed.
        """
        served = self._served
        if served is None:
            raise unsupported()
        async with self._sleep.entered(pool, num_live, command) as replicas:
            done: list[Replica] = []
            answers: list[WeightsInfo] = []
            try:
                for replica in replicas:
                    done.append(replica)
                    answers.append(await _load(replica, command.path))
            except LLMFWError:
                for replica in done[:-1]:
                    await _return_to(replica, served.path)
                raise
            served.path = command.path
            self._changed()
        memory = merged_memory([MemoryInfo(each.host_bytes, each.device_bytes) for each in answers])
        return WeightsInfo(command.path, answers[0].version, memory.host_bytes, memory.device_bytes)


async def _load(replica: Replica, path: str) -> WeightsInfo:
    """Load weights on one engine. What still runs there is deferrable, or was to be ended."""
    answer = await replica.client.control(LoadWeights(path, aborts=True))
    assert isinstance(answer, WeightsInfo)
    logger.info("Engine %d serves weights %s", replica.index, answer.version)
    return answer


async def _return_to(replica: Replica, path: str) -> None:
    """Load the previous weights on one engine. If that fails, close it: it would serve others than the rest."""
    try:
        await _load(replica, path)
    except LLMFWError as error:
        logger.error(
            "Engine %d cannot load the previous weights again, and is closed; remove it and add another one: %s",
            replica.index,
            error,
        )
        await replica.client.close()
