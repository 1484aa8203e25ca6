"""Puts all engines of a pool to sleep, and wakes them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from llmfw.core.base.control import Answer, GetMemory, Sleep, Wake
from llmfw.core.base.errors import ConflictError, EngineRestartingError
from llmfw.core.base.weights_command import LoadWeights

from ..client import EngineClient
from ..sleeping import EngineSleep
from .replica import Replica
from .replica_set import ReplicaSet

NOW_S = 5.0
"""Seconds that an engine without live requests may take to fall asleep."""


class PoolSleep:
    """Puts all engines to sleep, or none.

    Args:
        replicas: all engines.

    Attributes:
        gate: refuses new requests, and counts the requests that must end before the sleep.
    """

    def __init__(self, replicas: ReplicaSet) -> None:
        self._replicas = replicas
        self.gate = EngineSleep()

    async def enter(self, pool: EngineClient, num_live: Callable[[], int], command: Sleep) -> Answer:
        """Wait until no live request runs on any engine, then end all processes; return their memory.

        Raises:
            ConflictError: requests still run, or an engine is being restarted; all engines stay awake.
            NotReadyError: the engines are already asleep.
        """
        async with self.gate.changing:
            running = self._running()
            memory = await self.gate.enter(pool, num_live, command)
            try:
                await asyncio.gather(*(replica.client.control(Sleep(NOW_S)) for replica in running))
            except BaseException:
                await self._wake_all()
                raise
            return memory

    async def leave(self, pool: EngineClient) -> Answer:
        """Start the processes of all sleeping engines, and wait until they are ready; return their memory."""
        async with self.gate.changing:
            await self._wake_all()
            return await pool.control(GetMemory())

    @contextlib.asynccontextmanager
    async def entered(
        self, pool: EngineClient, num_live: Callable[[], int], command: LoadWeights
    ) -> AsyncIterator[list[Replica]]:
        """Let requests wait during the block, which starts once no live request runs; yields the engines.

        Raises:
            ConflictError, NotReadyError: as in `enter`.
        """
        async with self.gate.changing:
            running = self._running()
            await self.gate.enter(pool, num_live, command)
            try:
                yield running
            finally:
                self.gate.end()

    def _running(self) -> list[Replica]:
        """Return the engines that have not failed for good, all of which must run now."""
        if self.gate.is_asleep and self.gate.refusal is not None:
            raise self.gate.refusal
        running = [replica for replica in self._replicas if replica.client.failure is None]
        if any(not replica.is_usable for replica in running):
            raise ConflictError(
                "an engine is being restarted, and all stay as they are; try again later",
                code="engine_restarting",
                passing=True,
            )
        return running

    async def _wake_all(self) -> None:
        """Wake the sleeping engines, and take requests again. Restarting engines need no wake-up."""
        running = [replica for replica in self._replicas if replica.client.failure is None]
        try:
            wakes = (replica.client.control(Wake()) for replica in running)
            answers = await asyncio.gather(*wakes, return_exceptions=True)
        finally:
            self.gate.end()
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, EngineRestartingError):
                raise answer
