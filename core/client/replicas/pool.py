"""Presents several engines as one client. If an engine dies before it answers, another one answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence

from llmfw.core.base.control import Answer, Command, SetLogLevel, Sleep, Wake
from llmfw.core.base.engine_info import EngineInfo, EngineStats
from llmfw.core.base.errors import (
    EngineDeadError,
    EngineError,
    EngineLostError,
    EngineRestartingError,
    NotReadyError,
    OverloadedError,
    RequestError,
    TenantLimitError,
)
from llmfw.core.base.replica_commands import ReplicaCommand
from llmfw.core.base.request import EmbedRequest, Request, TokenEvent
from llmfw.core.base.weights_command import OTHER_WEIGHTS, LoadWeights
from llmfw.core.engine.admission.queue_gate import QueueGate

from ..client import ReplicaState, RequestWatch
from ..engine_wait import WAIT_S, EngineWait, check_rerun
from ..launched import LaunchedEngineClient
from ..quarantine import Attempt
from ..request_progress import Continuations, RequestProgress
from ..supervisor import SupervisedEngineClient
from ..weights_swap import ServedWeights
from ..whole_request import WholeRequest
from .isolated_router import IsolatedRouter
from .merged import merged_info, merged_stats
from .pool_commands import PoolCommands
from .pool_members import Growth, PoolMembers
from .pool_sleep import PoolSleep
from .pool_weights import PoolWeights
from .replica import Replica
from .replica_load import Place
from .replica_set import ReplicaSet
from .routing import Routing, num_tokens_of

logger = logging.getLogger(__name__)


class EnginePool(LaunchedEngineClient):
    """Starts several equal engines, and distributes requests among them.

    If an engine dies, its requests run on another engine at once, under the same conditions as on a restarted
    engine (see `SupervisedEngineClient`). While no engine runs, requests wait, as they wait for a single
    engine.

    Args:
        clients: clients of the engines, at least one. These clients must not continue requests themselves.
        router: chooses the engine of each request; None: the engine with the fewest queued tokens.
        max_tenant_requests: maximum number of requests of one tenant on all engines; None: no limit.
        wait_s: seconds that a new request waits while no engine runs.
        continuations: lets another engine continue requests; None: requests are not continued.
        growth: settings for adding engines; None: no engine can be added.
        served: checkpoint of new engines, which can be replaced; None: it cannot.
    """

    def __init__(
        self,
        clients: Sequence[SupervisedEngineClient],
        router: IsolatedRouter | None = None,
        max_tenant_requests: int | None = None,
        wait_s: float = WAIT_S,
        continuations: Continuations | None = None,
        growth: Growth | None = None,
        served: ServedWeights | None = None,
    ) -> None:
        self._replicas = ReplicaSet(Replica(index, client) for index, client in enumerate(clients))
        self._wait = EngineWait(lambda: self.outage, wait_s)
        self._continuations = continuations
        self._commands = PoolCommands(self._replicas)
        self._routing = Routing(self._replicas, router or IsolatedRouter(), self._commands.adapters)
        self._sleep = PoolSleep(self._replicas)
        self._weights = PoolWeights(self._sleep, served, self._note_change)
        self._members = PoolMembers(
            self._replicas,
            growth,
            self._sleep.gate,
            continues=continuations is not None,
            prepare=self._prepare,
            changed=self._note_change,
        )
        self._has_changed = asyncio.Event()  # set when an engine is added or removed
        self._gate = QueueGate(max_tenant_requests=max_tenant_requests)
        self._takers: list[Replica] = []  # engines that get new requests, as of the last change
        self._open: dict[str, WholeRequest | None] = {}  # live requests
        self._ids: set[str] = set()
        self._info: EngineInfo | None = None
        self._closed = False

    @property
    def info(self) -> EngineInfo:
        if self._info is None:
            raise EngineError("the engines are not ready yet")
        return self._info

    @property
    def failure(self) -> str | None:
        failures = [replica.client.failure for replica in self._replicas]
        if self._closed:
            return "the engine was closed"
        return failures[0] if all(failure is not None for failure in failures) else None

    @property
    def outage(self) -> str | None:
        if self.failure is not None or self._sleep.gate.is_asleep or self._takers:
            return self.failure
        reasons = (replica.client.outage for replica in self._replicas)
        return next((reason for reason in reasons if reason is not None), None)

    @property
    def refusal(self) -> NotReadyError | None:
        return self._sleep.gate.refusal

    @property
    def num_continued(self) -> int:
        return 0 if self._continuations is None else self._continuations.count

    @property
    def num_restarts(self) -> int:
        return sum(replica.client.num_restarts for replica in self._replicas)

    @property
    def replicas(self) -> Sequence[ReplicaState]:
        return [replica.state for replica in self._replicas]

    @contextlib.contextmanager
    def launched(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for replica in self._replicas:
                stack.enter_context(replica.client.launched())
            yield

    async def start(self) -> None:
        starts = [asyncio.create_task(replica.client.start()) for replica in self._replicas]
        try:
            await asyncio.wait(starts, return_when=asyncio.FIRST_EXCEPTION)
            for start in starts:
                if start.done():
                    start.result()
        finally:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
        self._note_change()
        self._commands.adapters.begin(self.info.adapters)
        logger.info("%d engines run", len(self._replicas))

    async def wait_lost(self) -> EngineLostError:
        while True:
            self._has_changed.clear()
            lost = asyncio.create_task(self._replicas.all_lost())
            change = asyncio.create_task(self._has_changed.wait())
            try:
                await asyncio.wait((lost, change), return_when=asyncio.FIRST_COMPLETED)
                if not change.done():
                    return lost.result()
            finally:
                lost.cancel()
                change.cancel()

    def stop_restarting(self) -> None:
        for replica in self._replicas:
            replica.client.stop_restarting()

    def show_stacks(self) -> None:
        for replica in self._replicas:
            replica.client.show_stacks()

    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        return self._events(request, request.may_restart)

    def watched(self, request: Request, watch: RequestWatch) -> AsyncGenerator[TokenEvent, None]:
        return self._events(request, request.may_restart, watch)

    async def embed(self, request: EmbedRequest) -> bytes:
        async with contextlib.aclosing(self._events(request, may_restart=True)) as events:
            return b"".join([event.vectors async for event in events])

    async def stats(self) -> EngineStats:
        self._check_usable()
        stats = [each for each in await self.replica_stats() if each is not None]
        if not stats:
            raise EngineRestartingError(self.outage or "the engines ended meanwhile")
        return merged_stats(stats)

    async def replica_stats(self) -> Sequence[EngineStats | None]:
        return await asyncio.gather(*(replica.stats() for replica in self._replicas))

    async def control(self, command: Command) -> Answer:
        if isinstance(command, Sleep):
            self._check_usable()
            return await self._sleep.enter(self, self._num_live, command)
        if isinstance(command, Wake):
            return await self._sleep.leave(self)
        if isinstance(command, LoadWeights):
            return await self._weights.load(self, self._num_live, command)
        if isinstance(command, ReplicaCommand):
            return await self._members.carry_out(command)
        if not isinstance(command, SetLogLevel):  # which an engine can carry out once it runs
            self._check_usable()
        return await self._commands.carry_out(command)

    async def close(self) -> None:
        self._closed = True
        self._wait.end()
        clients = [replica.client for replica in self._replicas] + self._members.starting
        await asyncio.gather(*(client.close() for client in clients))

    async def _events(
        self, request: Request | EmbedRequest, may_restart: bool, watch: RequestWatch | None = None
    ) -> AsyncGenerator[TokenEvent, None]:
        """Yield the events of a request. If its engine dies, continue with another engine."""
        attempt, begun_at = Attempt(request.deferrable), time.monotonic()
        digest_of, gate = self._commands.adapters.digest_of, self._sleep.gate
        progress = RequestProgress(request, self._continuations, digest_of, lambda: gate.num_loads)
        refused: set[int] = set()  # engines whose queues were full
        with contextlib.ExitStack() as at_end:
            if watch is not None:
                at_end.enter_context(watch)
            at_end.enter_context(self._counted(request))
            while True:
                rest, has_begun, has_tokens = progress.rest, False, False
                replica, place = await self._turn(attempt, rest, begun_at, refused)
                try:
                    if has_begun := progress.is_void():
                        raise EngineDeadError(OTHER_WEIGHTS)
                    async with contextlib.aclosing(replica.client.once(rest, attempt, begun_at)) as events:
                        async for event in events:
                            if has_tokens and event.token_ids and event.finish_reason is None:  # most events
                                if watch is not None:
                                    watch.num_tokens += len(event.token_ids)
                                progress.sent.extend(event.token_ids)
                                yield event
                                continue
                            has_tokens = has_tokens or bool(event.token_ids)
                            if event.wait is None and not has_begun:
                                has_begun = True
                                replica.note_answer(place)
                                self._gate.admit(request.id)
                            progress.sent.extend(event.token_ids)
                            if watch is not None:
                                watch.note(event)
                            yield event
                    return
                except OverloadedError as error:
                    refused.add(replica.index)
                    if has_begun or not self._may_go_elsewhere(request, error, refused):
                        raise
                    continue
                except EngineDeadError as error:
                    has_answered = has_begun and not (may_restart or progress.continues)
                    check_rerun(attempt, error, is_lost=self.failure is not None, has_answered=has_answered)
                finally:
                    replica.load.leave(place)
                    self._members.note_end()
                if has_begun and (restarted := progress.interrupt()) is not None:
                    if watch is not None:
                        watch.note(restarted)
                    yield restarted

    @contextlib.contextmanager
    def _counted(self, request: Request | EmbedRequest) -> Iterator[None]:
        """Count a request as running, from its arrival to its end.

        Raises:
            RequestError: a request with the same id is running.
            TenantLimitError: the tenant has reached a limit.
        """
        if request.id in self._ids:
            raise RequestError(f"a request with id {request.id!r} runs already; use another id", param="id")
        num_tokens = num_tokens_of(request)
        if not request.deferrable:
            self._gate.check_request(request, num_tokens, time.monotonic())
            self._gate.enter(request.id, num_tokens, request.tenant, is_key=request.tenant_is_key)
        self._ids.add(request.id)
        try:
            yield
        finally:
            self._ids.discard(request.id)
            self._open.pop(request.id, None)
            self._gate.leave(request.id, time.monotonic())
            self._sleep.gate.note_end()

    def _may_go_elsewhere(
        self, request: Request | EmbedRequest, error: OverloadedError, refused: Collection[int]
    ) -> bool:
        """Return whether another engine may have room for a refused request."""
        is_free = isinstance(request, EmbedRequest) or request.replica is None
        has_others = any(replica.index not in refused for replica in self._takers)
        return is_free and has_others and not isinstance(error, TenantLimitError | NotReadyError)

    async def _turn(
        self,
        attempt: Attempt,
        request: Request | EmbedRequest,
        begun_at: float,
        refused: Collection[int],
    ) -> tuple[Replica, Place]:
        """Wait until an engine is usable; return the request's engine, and its place there.

        Args:
            refused: numbers of the engines that have refused the request; chosen only if there is no other
                engine.
        """
        while True:
            await self._sleep.gate.pass_hold(attempt, request, begun_at)
            refusal = self._sleep.gate.refusal_of_part
            if refusal is not None and not (request.deferrable or attempt.was_sent):
                raise refusal
            if (self._closed or not self._takers) and (failure := self.failure) is not None:
                raise EngineDeadError(failure)
            if takers := self._takers:
                if not request.deferrable:
                    self._open[request.id] = self._sleep.gate.note_start()
                if refused:
                    takers = [replica for replica in takers if replica.index not in refused] or takers
                return self._routing.enter(request, takers)
            await self._wait.wait(attempt, request, begun_at)

    def _find_takers(self) -> list[Replica]:
        """Return the engines that get new requests.

        Quiet engines get them only if all others are out. Drained engines get them only if all others have
        failed for good.
        """
        takers = [replica for replica in self._replicas if replica.takes_requests]
        if lively := [replica for replica in takers if not replica.is_quiet]:
            return lively
        if takers or any(not each.is_draining and each.client.failure is None for each in self._replicas):
            return takers
        return [replica for replica in self._replicas if replica.is_usable]

    def _num_live(self) -> int:
        return self._sleep.gate.num_live(self._open.values())

    def _check_usable(self) -> None:
        """Raise the reason if no engine answers now."""
        if self.failure is not None:
            raise EngineDeadError(self.failure)
        if self._sleep.gate.is_asleep and self.refusal is not None:
            raise self.refusal
        if self.outage is not None:
            raise EngineRestartingError(self.outage)

    async def _prepare(self, client: SupervisedEngineClient) -> None:
        """Bring a newly started engine up to date with the others. Raises LLMFWError if it differs."""
        merged_info([*self._replicas.infos, client.info])
        await self._commands.bring_up_to_date(client)

    def _note_change(self) -> None:
        """Update the pool after its engines have changed: one was added, removed, drained or undrained."""
        self._info = merged_info(self._replicas.infos)
        for replica in self._replicas:
            replica.client.call_on_change(self._look)
        self._has_changed.set()
        self._look()

    def _look(self) -> None:
        """Note which engines are usable now; called at each change."""
        usable = [replica for replica in self._replicas if replica.is_usable]
        for replica in usable:
            replica.attach(self._replicas.prefixes)
        self._takers = self._find_takers()
        if self._takers or self.failure is not None:
            self._wait.end()
        else:
            self._wait.begin()
        self._log_quiet()
        for replica in self._replicas:
            changed, replica.was_usable = replica.was_usable != replica.is_usable, replica.is_usable
            if changed and not self._closed and self.refusal is None:
                what = "runs again" if replica.is_usable else f"is out: {replica.client.outage}"
                logger.log(
                    logging.INFO if replica.is_usable else logging.WARNING,
                    "Engine %d %s (%d of %d run)",
                    *(replica.index, what, len(usable), len(self._replicas)),
                )

    def _log_quiet(self) -> None:
        for replica in self._replicas:
            changed, replica.was_quiet = replica.was_quiet != replica.is_quiet, replica.is_quiet
            if changed and replica.is_quiet:
                logger.warning(
                    "Engine %d shows no sign of life; new requests go to other engines meanwhile",
                    replica.index,
                )
            elif changed and replica.is_usable:
                logger.info("Engine %d shows signs of life again", replica.index)
