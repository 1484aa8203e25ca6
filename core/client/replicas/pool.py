"""Several engines as one client. Sends each request to one of them, and to another one if that engine dies before it
answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence

from llmfw.core.base.control import Answer, Command, Sleep, Wake
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
from llmfw.core.base.request import EmbedRequest, Request, TokenEvent
from llmfw.core.engine.admission.queue_gate import QueueGate

from ..client import ReplicaState, RequestWatch
from ..engine_wait import WAIT_S, EngineWait, check_rerun
from ..launched import LaunchedEngineClient
from ..quarantine import Attempt
from ..supervisor import SupervisedEngineClient
from ..whole_request import WholeRequest
from .isolated_router import IsolatedRouter
from .merged import merged_info, merged_stats
from .pool_commands import PoolCommands
from .pool_sleep import PoolSleep
from .replica import Replica
from .replica_load import Place
from .routing import Routing, num_tokens_of

logger = logging.getLogger(__name__)


class EnginePool(LaunchedEngineClient):
    """Starts several equal engines, and distributes requests among them.

    A request whose engine dies runs on another one at once, on the same terms as on a restarted engine (see
    `SupervisedEngineClient`). While no engine runs, requests wait as they do for a single one.

    Args:
        clients: clients of the engines, at least two.
        router: chooses the engine of each request; None: the engine with the fewest queued tokens.
        max_tenant_requests: maximum number of requests of one tenant on all engines; None: no limit.
        wait_s: seconds that a new request waits while no engine runs.
    """

    def __init__(
        self,
        clients: Sequence[SupervisedEngineClient],
        router: IsolatedRouter | None = None,
        max_tenant_requests: int | None = None,
        wait_s: float = WAIT_S,
    ) -> None:
        self._replicas = [Replica(index, client) for index, client in enumerate(clients)]
        self._routing = Routing(self._replicas, router or IsolatedRouter())
        self._wait = EngineWait(lambda: self.outage, wait_s)
        self._commands = PoolCommands(self._replicas)
        self._sleep = PoolSleep(self._replicas)
        self._gate = QueueGate(max_tenant_requests=max_tenant_requests)
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
        if self.failure is not None or self._sleep.gate.is_asleep or self._usable():
            return self.failure
        reasons = (replica.client.outage for replica in self._replicas)
        return next((reason for reason in reasons if reason is not None), None)

    @property
    def refusal(self) -> NotReadyError | None:
        return self._sleep.gate.refusal

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
        self._info = merged_info([replica.client.info for replica in self._replicas])
        for replica in self._replicas:
            replica.client.call_on_change(self._look)
        self._look()
        logger.info("%d engines run", len(self._replicas))

    async def wait_lost(self) -> EngineLostError:
        return (await asyncio.gather(*(replica.client.wait_lost() for replica in self._replicas)))[0]

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
        self._check_usable()
        return await self._commands.carry_out(command)

    async def close(self) -> None:
        self._closed = True
        self._wait.end()
        await asyncio.gather(*(replica.client.close() for replica in self._replicas))

    async def _events(
        self, request: Request | EmbedRequest, may_restart: bool, watch: RequestWatch | None = None
    ) -> AsyncGenerator[TokenEvent, None]:
        """Yield the events of a request, on one engine after the other if they die."""
        attempt, begun_at = Attempt(request.deferrable), time.monotonic()
        refused: set[int] = set()  # engines whose queues were full
        with contextlib.ExitStack() as at_end:
            if watch is not None:
                at_end.enter_context(watch)
            at_end.enter_context(self._counted(request))
            while True:
                replica, place = await self._turn(attempt, request, begun_at, refused)
                has_begun = has_tokens = False
                try:
                    async with contextlib.aclosing(replica.client.once(request, attempt, begun_at)) as events:
                        async for event in events:
                            if has_tokens and event.token_ids and event.finish_reason is None:  # most events
                                if watch is not None:
                                    watch.num_tokens += len(event.token_ids)
                                yield event
                                continue
                            has_tokens = has_tokens or bool(event.token_ids)
                            if event.wait is None and not has_begun:
                                has_begun = True
                                replica.load.answered(place)
                                self._gate.admit(request.id)
                            if watch is not None:
                                watch.note(event)
                            yield event
                    return
                except OverloadedError as error:
                    if has_begun or not self._may_go_elsewhere(request, error, refused):
                        raise
                    refused.add(replica.index)
                    continue
                except EngineDeadError as error:
                    has_answered = has_begun and not may_restart
                    check_rerun(attempt, error, is_lost=self.failure is not None, has_answered=has_answered)
                finally:
                    replica.load.leave(place)
                if has_begun:
                    restarted = TokenEvent(request.id, [], restarted=True)
                    if watch is not None:
                        watch.note(restarted)
                    yield restarted

    @contextlib.contextmanager
    def _counted(self, request: Request | EmbedRequest) -> Iterator[None]:
        """Count a request from its arrival to its end.

        Raises:
            RequestError: a request with its id runs already.
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
        """Return whether another engine may have room for a request that an engine has refused."""
        is_free = isinstance(request, EmbedRequest) or request.replica is None
        others = [replica for replica in self._usable() if replica.index not in refused]
        return is_free and len(others) > 1 and not isinstance(error, TenantLimitError | NotReadyError)

    async def _turn(
        self,
        attempt: Attempt,
        request: Request | EmbedRequest,
        begun_at: float,
        refused: Collection[int],
    ) -> tuple[Replica, Place]:
        """Wait until an engine is usable; return the one for the request, and the request's place there.

        Args:
            refused: numbers of the engines that have refused the request; chosen only if there is no other.
        """
        while True:
            refusal = self._sleep.gate.refusal_of_part
            if refusal is not None and not (request.deferrable or attempt.was_sent):
                raise refusal
            if self.failure is not None:
                raise EngineDeadError(self.failure)
            if usable := self._usable():
                if not request.deferrable:
                    self._open[request.id] = self._sleep.gate.note_start()
                return self._routing.enter(
                    request, [replica for replica in usable if replica.index not in refused] or usable
                )
            await self._wait.wait(attempt, request, begun_at)

    def _usable(self) -> list[Replica]:
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

    def _look(self) -> None:
        """Note which engines are usable now; called whenever that changes."""
        usable = self._usable()
        if usable or self.failure is not None:
            self._wait.end()
        else:
            self._wait.begin()
        for replica in self._replicas:
            changed, replica.was_usable = replica.was_usable != replica.is_usable, replica.is_usable
            if changed and not self._closed and self.refusal is None:
                what = "runs again" if replica.is_usable else f"is out: {replica.client.outage}"
                logger.log(
                    logging.INFO if replica.is_usable else logging.WARNING,
                    "Engine %d %s (%d of %d run)",
                    *(replica.index, what, len(usable), len(self._replicas)),
                )
