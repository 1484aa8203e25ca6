"""Drains, adds and removes engines of a pool while it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from llmfw.core.base.errors import ConflictError, EngineError, LLMFWError, NotFoundError
from llmfw.core.base.replica_commands import (
    AddReplica,
    DrainReplica,
    ListReplicas,
    RemoveReplica,
    ReplicaCommand,
    ReplicaInfo,
    ReplicaList,
    UndrainReplica,
)

from ..sleeping import EngineSleep
from ..supervisor import SupervisedEngineClient
from .replica import Replica
from .replica_set import ReplicaSet

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Growth:
    """Settings for adding engines to a pool.

    Attributes:
        new_client: function that creates the client of an engine, by the engine's number.
        most: maximum number of engines; their numbers are below it.
    """

    new_client: Callable[[int], SupervisedEngineClient]
    most: int


class PoolMembers:
    """Carries out an administrator's commands about single engines.

    Args:
        replicas: the engines, which this class changes.
        growth: settings for adding engines; None: no engine can be added.
        sleep: sleep of all engines. During the sleep, no engine can be added or removed.
        continues: whether another engine may continue the requests of an engine that is removed.
        prepare: brings a newly started engine up to date with the others; raises LLMFWError if it differs
            from them.
        changed: called after an engine was added, removed, drained or undrained.
    """

    def __init__(
        self,
        replicas: ReplicaSet,
        growth: Growth | None,
        sleep: EngineSleep,
        *,
        continues: bool,
        prepare: Callable[[SupervisedEngineClient], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self._replicas = replicas
        self._growth = growth
        self._sleep = sleep
        self._continues = continues
        self._prepare = prepare
        self._changed = changed
        self._changing = asyncio.Lock()
        self._starting: dict[int, SupervisedEngineClient] = {}
        self._has_ended = asyncio.Event()  # set at the end of each request

    @property
    def starting(self) -> list[SupervisedEngineClient]:
        """Clients of the engines that are being added."""
        return list(self._starting.values())

    def note_end(self) -> None:
        """Record that a request has left its engine."""
        self._has_ended.set()

    async def carry_out(self, command: ReplicaCommand) -> ReplicaInfo | ReplicaList:
        """Carry out a command.

        Raises:
            NotFoundError: there is no such engine.
            ConflictError: the engine is the last one that takes requests; there is no room for another
                engine; requests still run; or the engines sleep.
            EngineError: a new engine could not be started.
        """
        match command:
            case ListReplicas():
                return self._list()
            case DrainReplica():
                return self._drain(self._found(command.index))
            case UndrainReplica():
                return self._undrain(self._found(command.index))
            case AddReplica():
                async with self._changing:
                    return await self._add()
            case RemoveReplica():
                async with self._changing:
                    return await self._remove(self._found(command.index), command.timeout_s)

    def _list(self) -> ReplicaList:
        infos = [replica.info(is_asleep=self._sleep.is_asleep) for replica in self._replicas]
        infos += [ReplicaInfo(index=index, state="starting") for index in self._starting]
        most = len(self._replicas) if self._growth is None else self._growth.most
        return ReplicaList(sorted(infos, key=lambda info: info.index), most)

    def _drain(self, replica: Replica) -> ReplicaInfo:
        self._check_awake()
        if not replica.is_draining:
            self._check_not_last(replica)
            replica.is_draining = True
            logger.info("Engine %d gets no new requests", replica.index)
            self._changed()
        return replica.info()

    def _undrain(self, replica: Replica) -> ReplicaInfo:
        if replica.is_draining:
            replica.is_draining = False
            self._has_ended.set()  # a removal may wait for its requests
            logger.info("Engine %d gets new requests again", replica.index)
            self._changed()
        return replica.info(is_asleep=self._sleep.is_asleep)

    async def _add(self) -> ReplicaInfo:
        self._check_awake()
        index = self._free_index()
        assert self._growth is not None
        client = self._growth.new_client(index)
        self._starting[index] = client
        try:
            await client.start()
            await self._prepare(client)
            self._check_awake()
        except BaseException as error:
            await client.close()
            if isinstance(error, LLMFWError) and not isinstance(error, ConflictError):
                raise EngineError(f"engine {index} could not be added: {error}") from error
            raise
        finally:
            del self._starting[index]
        replica = Replica(index, client)
        self._replicas.add(replica)
        logger.info("Engine %d was added; there are %d", index, len(self._replicas))
        self._changed()
        return replica.info()

    async def _remove(self, replica: Replica, timeout_s: float) -> ReplicaInfo:
        self._check_awake()
        self._check_not_last(replica)
        was_draining, replica.is_draining = replica.is_draining, True
        self._changed()
        try:
            is_idle = await self._wait_idle(replica, timeout_s)
            self._check_awake()
            self._check_not_last(replica)
            if not (is_idle or self._continues):
                raise ConflictError(
                    f"{replica.load.num_requests} requests of engine {replica.index} still run after {timeout_s:g} s, and it stays; "
                    "try again later",
                    code="requests_running",
                    passing=True,
                )
        except BaseException:
            replica.is_draining = was_draining
            self._changed()
            raise
        info = replica.info()
        self._replicas.remove(replica)
        logger.info("Engine %d is removed; there are %d", replica.index, len(self._replicas))
        self._changed()
        await replica.client.close()
        return ReplicaInfo(index=info.index, state="removed", num_restarts=info.num_restarts)

    async def _wait_idle(self, replica: Replica, timeout_s: float) -> bool:
        """Wait until an engine has no requests; return False if the timeout passes first.

        Raises:
            ConflictError: the engine was undrained meanwhile.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while replica.load.num_requests and replica.is_draining:
                    self._has_ended.clear()
                    await self._has_ended.wait()
        except TimeoutError:
            return False
        if not replica.is_draining:
            raise ConflictError(
                f"engine {replica.index} was undrained meanwhile, and stays; remove it again",
                code="undrained",
            )
        return True

    def _found(self, index: int) -> Replica:
        if (replica := self._replicas.find(index)) is None:
            there = ", ".join(str(each.index) for each in self._replicas)
            raise NotFoundError(f"there is no engine {index}; the engines are {there}", param="index")
        return replica

    def _free_index(self) -> int:
        most = len(self._replicas) if self._growth is None else self._growth.most
        taken = {replica.index for replica in self._replicas}
        free = [index for index in range(most) if index not in taken]
        if not free:
            raise ConflictError(
                f"there are {len(taken)} engines, and memory is planned for no more; start the server with a larger --max-replicas",
                code="no_room",
            )
        return free[0]

    def _check_awake(self) -> None:
        if self._sleep.refusal is not None:
            raise ConflictError("the engines sleep; wake them first", code="asleep")
        if self._sleep.changing.locked():
            raise ConflictError(
                "the engines wake up or load other weights; try again later",
                code="engine_restarting",
                passing=True,
            )

    def _check_not_last(self, replica: Replica) -> None:
        """Raise ConflictError if no other engine takes requests now."""
        if not any(each is not replica and each.takes_requests for each in self._replicas):
            if replica.client.failure is not None and len(self._replicas) > 1:
                return  # this engine takes no requests either, and never will
            raise ConflictError(
                f"no other engine takes requests now than engine {replica.index}, which stays; undrain or add another one, or wait "
                "until one has been restarted",
                code="last_engine",
                passing=True,
            )
