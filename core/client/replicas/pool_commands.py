"""Sends administrators' commands to several engines, and merges the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TypeVar

from llmfw.core.base.control import (
    Answer,
    CacheView,
    Command,
    FlushCache,
    GetMemory,
    GetPolicy,
    GetTrace,
    ListAdapters,
    LoadAdapter,
    LogLevelInfo,
    MemoryInfo,
    PinInfo,
    PinPrefix,
    PolicyInfo,
    RequestTrace,
    SetLogLevel,
    SetPolicy,
    UnloadAdapter,
    UnpinPrefix,
    ViewCache,
)
from llmfw.core.base.errors import EngineDeadError, LLMFWError, NotFoundError, RequestError
from llmfw.core.base.steps_view import ViewSteps

from ..supervisor import SupervisedEngineClient
from .merged import merged_memory, merged_policy, merged_view
from .pool_adapters import PoolAdapters
from .pool_pins import PoolPins
from .replica import Replica
from .replica_set import ReplicaSet

AnswerT = TypeVar("AnswerT")
SHOWN_PREFIXES = 50


class PoolCommands:
    """Carries out commands on all running engines.

    Engines that are being restarted get the policy and the log level once they run. If an engine refuses a
    command, the command is undone on the others.

    Args:
        replicas: all engines.

    Attributes:
        adapters: the adapters of the engines.
    """

    def __init__(self, replicas: ReplicaSet) -> None:
        self._replicas = replicas
        self._remembered: dict[type[Command], Command] = {}
        self.adapters = PoolAdapters(replicas)
        self._pins = PoolPins()
        self._changing = asyncio.Lock()

    async def carry_out(self, command: Command) -> Answer:
        """Carry out a command other than `Sleep` and `Wake`; raises as `EngineClient.control` does."""
        match command:
            case GetPolicy():
                return merged_policy(list((await self._all(command, PolicyInfo)).values()))
            case SetPolicy():
                async with self._changing:
                    return await self._set_policy(command)
            case SetLogLevel():
                async with self._changing:
                    asked = await self._all(command, LogLevelInfo)
                    await self._remember(command, asked, LogLevelInfo)
                return LogLevelInfo(command.level)
            case ViewCache():
                return self._view(await self._all(command, CacheView), command.most)
            case FlushCache():
                if command.only_idle:
                    self._check_idle()
                return self._view(await self._all(command, CacheView), SHOWN_PREFIXES)
            case PinPrefix():
                return self._pins.add(await self._pin(command))
            case UnpinPrefix():
                return await self._unpin(command)
            case GetTrace():
                return await self._trace(command)
            case GetMemory():
                return merged_memory(list((await self._all(command, MemoryInfo)).values()))
            case ListAdapters() | LoadAdapter() | UnloadAdapter():
                return await self.adapters.carry_out(command)
            case ViewSteps():
                raise RequestError(
                    f"this server has {len(self._replicas)} engines, and the batch step by step needs a server with one; leave "
                    "out --replicas",
                    code="unsupported_operation",
                )
            case _:
                raise AssertionError(f"{command} is not for the engines")

    async def _set_policy(self, command: SetPolicy) -> PolicyInfo:
        before = await self._all(GetPolicy(), PolicyInfo)
        try:
            after = await self._all(command, PolicyInfo)
        except LLMFWError:
            for index, policy in before.items():
                await self._undo(index, SetPolicy(policy.name, policy.options))
            raise
        after |= await self._remember(command, after, PolicyInfo)
        return merged_policy(list(after.values()))

    async def bring_up_to_date(self, client: SupervisedEngineClient) -> None:
        """Apply the settings of the other engines to a newly started engine.

        The caller must add the engine to the pool at once: settings that change later reach only engines in the pool.
        """
        async with self._changing, self.adapters.changing:
            for command in self._remembered.values():
                await client.control(command)
            await self.adapters.bring_up_to_date(client)

    async def _remember(
        self, command: Command, asked: Mapping[int, AnswerT], kind: type[AnswerT]
    ) -> dict[int, AnswerT]:
        """Apply a command to engines that start from now on, and to those that have started meanwhile.

        Args:
            asked: answers of the engines that have carried it out.

        Returns:
            The answers of the engines that have started meanwhile.
        """
        self._remembered[type(command)] = command
        for replica in self._replicas:
            replica.client.settings.remember(command)
        late = [each.index for each in self._replicas if each.is_usable and each.index not in asked]
        return await self._each(late, command, kind)

    async def _pin(self, command: PinPrefix) -> dict[int, PinInfo]:
        done: dict[int, PinInfo] = {}
        try:
            for replica in self._running():
                done |= await self._each([replica.index], command, PinInfo)
        except LLMFWError:
            for index, pin in done.items():
                await self._undo(index, UnpinPrefix(pin.id))
            raise
        if not done:
            raise EngineDeadError("all engines ended meanwhile")
        return done

    async def _unpin(self, command: UnpinPrefix) -> PinInfo:
        pins: list[PinInfo] = []
        for index, pin_id in self._pins.take(command.id).items():
            try:
                pins += (await self._each([index], UnpinPrefix(pin_id), PinInfo)).values()
            except NotFoundError:  # the engine has been restarted, or the pin has expired there
                continue
        if not pins:
            raise NotFoundError(
                f"no prefix is pinned as {command.id!r}; the pin may have expired", param="id"
            )
        return PinInfo(command.id, pins[0].num_tokens, min(pin.num_cached for pin in pins), 0.0)

    async def _trace(self, command: GetTrace) -> RequestTrace:
        """Return the latest trace of a request, which may have been sent to several engines in turn."""
        found: list[RequestTrace] = []
        missing: NotFoundError | None = None
        for replica in self._running():
            try:
                found += (await self._each([replica.index], command, RequestTrace)).values()
            except NotFoundError as error:
                missing = error
        if not found:
            raise missing or EngineDeadError("all engines ended meanwhile")
        return max(found, key=lambda trace: trace.arrived_at)

    def _view(self, views: Mapping[int, CacheView], most: int) -> CacheView:
        pins = self._pins.of(views, are_all=len(views) == len(self._replicas))
        return merged_view(views, pins, most)

    def _check_idle(self) -> None:
        waiting = sum(replica.load.num_waiting for replica in self._replicas)
        running = sum(replica.load.num_running for replica in self._replicas)
        if running or waiting:
            raise RequestError(
                f"{running} requests run and {waiting} wait; the whole cache can be emptied once they have ended: try again "
                "then, or use POST /admin/cache/flush, which keeps what they hold",
                code="requests_running",
            )

    async def _all(self, command: Command, kind: type[AnswerT]) -> dict[int, AnswerT]:
        """Return the answers of all running engines, by number; raise the first refusal."""
        answers = await self._each([replica.index for replica in self._running()], command, kind)
        if not answers:
            raise EngineDeadError("all engines ended meanwhile")
        return answers

    def _running(self) -> list[Replica]:
        """Return the engines that take commands now. If there are none, return the first, for its error."""
        running = [replica for replica in self._replicas if replica.is_usable]
        return running or [next(iter(self._replicas))]

    async def _each(
        self, indexes: Iterable[int], command: Command, kind: type[AnswerT]
    ) -> dict[int, AnswerT]:
        """Return these engines' answers. Leaves out engines that end meanwhile, if another one answers."""
        replicas = [replica for index in indexes if (replica := self._replicas.find(index)) is not None]
        found = await asyncio.gather(
            *(replica.client.control(command) for replica in replicas), return_exceptions=True
        )
        answers: dict[int, AnswerT] = {}
        for index, answer in zip((replica.index for replica in replicas), found, strict=True):
            if isinstance(answer, BaseException):
                if not isinstance(answer, EngineDeadError) or len(self._running_others(index)) == 0:
                    raise answer
            else:
                assert isinstance(answer, kind), f"engine {index} answered {command!r} by {answer!r}"
                answers[index] = answer
        return answers

    def _running_others(self, index: int) -> list[Replica]:
        return [each for each in self._replicas if each.is_usable and each.index != index]

    async def _undo(self, index: int, command: Command) -> None:
        """Send a command that undoes an earlier one. Ignores an engine that has ended."""
        if (replica := self._replicas.find(index)) is None:
            return
        try:
            await replica.client.control(command)
        except LLMFWError as error:
            if not isinstance(error, EngineDeadError):
                raise
