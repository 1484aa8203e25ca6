"""Restarts an engine that dies or hangs, and runs interrupted requests again.

Decides when to replace the process and what to run again; `process` handles a single process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator

from llmfw.core.base.control import AdapterList, Answer, Command, GetMemory, Sleep, Wake
from llmfw.core.base.described import described
from llmfw.core.base.engine_info import EngineInfo, EngineStats
from llmfw.core.base.errors import (
    EngineDeadError,
    EngineError,
    EngineLostError,
    EngineRestartingError,
    LLMFWError,
    NotReadyError,
)
from llmfw.core.base.replica_commands import ReplicaCommand, one_engine
from llmfw.core.base.request import EmbedRequest, Request, TokenEvent

from .cache_mirror import CacheMirror
from .client import NoWatch, RequestWatch
from .engine_wait import WAIT_S, EngineWait, check_rerun
from .launched import LaunchedEngineClient
from .process import ProcessEngineClient
from .quarantine import CRASH, KILL, Attempt, Quarantine, Witnesses
from .request_progress import Continuations, RequestProgress
from .restarts import RestartPolicy, Restarts, essence_of
from .run_time_settings import RunTimeSettings
from .sleeping import EngineSleep
from .time_left import in_time
from .whole_request import WholeRequest

logger = logging.getLogger(__name__)


class SupervisedEngineClient(LaunchedEngineClient):
    """Starts an engine process, and replaces it whenever it ends.

    After the end of a process, its requests run again. Requests with output continue after their output. If
    continuations are off, requests with output end with an EngineDeadError, unless their reader accepts that
    the output starts over (`Request.may_restart`). A request that repeatedly crashes the engine ends with a
    CrashingRequestError (`Quarantine`).

    Args:
        new_life: function that creates the client of one engine process.
        policy: whether and how often to restart the engine; None: the defaults of `RestartPolicy`.
        wait_s: seconds that a new request waits for a restart (see WAIT_S).
        continuations: lets another engine process continue requests; None: they are not continued.
        witnesses: requests of all engines of the server; None: this is the only engine.
    """

    def __init__(
        self,
        new_life: Callable[[], ProcessEngineClient],
        policy: RestartPolicy | None = None,
        wait_s: float = WAIT_S,
        continuations: Continuations | None = None,
        witnesses: Witnesses | None = None,
    ) -> None:
        self._new_life = new_life
        self._continuations = continuations
        self._wait = EngineWait(lambda: self._outage, wait_s)
        self._life = self._created()
        self._restarts = Restarts(policy or RestartPolicy())
        self._quarantine = Quarantine(witnesses)
        self._in_flight: dict[Attempt, WholeRequest | None] = {}
        self._info: EngineInfo | None = None
        self._settings = RunTimeSettings()
        self._outage: str | None = None
        self._failure: str | None = None
        self._sleep = EngineSleep()
        self._lost = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    @property
    def info(self) -> EngineInfo:
        if self._info is None:
            raise EngineError("the engine is not ready yet")
        return self._info

    @property
    def failure(self) -> str | None:
        return self._failure

    @property
    def outage(self) -> str | None:
        return self._failure or (None if self._sleep.is_asleep else self._outage)

    @property
    def refusal(self) -> NotReadyError | None:
        return self._sleep.refusal

    @property
    def num_continued(self) -> int:
        return 0 if self._continuations is None else self._continuations.count

    @property
    def num_restarts(self) -> int:
        return self._restarts.total

    @property
    def is_usable(self) -> bool:
        """Whether the engine takes requests now. A sleep that has begun does not count."""
        return self._wait.is_over and self._failure is None

    @property
    def is_quiet(self) -> bool:
        """Whether the engine has shown no sign of life lately."""
        return self._life.is_quiet

    @property
    def mirror(self) -> CacheMirror:
        """Copy of the prefix cache that the current engine has reported."""
        return self._life.mirror

    def call_on_change(self, function: Callable[[], None]) -> None:
        """Register a function to call whenever `is_usable`, `is_quiet` or `failure` changes."""
        self._wait.call_on_change(function)

    @property
    def pid(self) -> int | None:
        """Process id of the current engine process."""
        return self._life.pid

    @contextlib.contextmanager
    def launched(self) -> Iterator[None]:
        with self._life.launched():
            yield

    async def start(self) -> None:
        await self._life.start()
        self._info = self._life.info
        self._settings.adapters.begin(self._info.adapters)
        self._wait.end()
        self._keeping = asyncio.create_task(self._keep_running())

    async def wait_lost(self) -> EngineLostError:
        await self._lost.wait()
        return EngineLostError(self._failure)

    def stop_restarting(self) -> None:
        self._restarts.stop()

    def show_stacks(self) -> None:
        self._life.show_stacks()

    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        return self._events(request, request.may_restart)

    def watched(self, request: Request, watch: RequestWatch) -> AsyncGenerator[TokenEvent, None]:
        return self._events(request, request.may_restart, watch)

    async def embed(self, request: EmbedRequest) -> bytes:
        async with contextlib.aclosing(self._events(request, may_restart=True)) as events:
            return b"".join([event.vectors async for event in events])

    async def stats(self) -> EngineStats:
        return await self._life_now().stats()

    async def control(self, command: Command) -> Answer:
        if isinstance(command, Sleep | Wake):
            async with self._sleep.changing:
                return await (self._wake() if isinstance(command, Wake) else self._fall_asleep(command))
        if isinstance(command, ReplicaCommand):
            raise one_engine()
        if not (self.is_usable or self._failure) and (answer := self._settings.put_off(command)):
            return answer
        answer = await self._life_now().control(command)
        self._settings.note(command, answer)
        return answer

    def remember(self, command: Command) -> None:
        """Apply a policy or a log level to engines that start from now on."""
        self._settings.remember(command)

    def remember_adapters(self, adapters: AdapterList) -> None:
        """Load these adapters on engines that start from now on."""
        self._settings.adapters.note(adapters)

    async def close(self) -> None:
        self._fail("the engine was closed")
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        await self._life.close()

    def once(
        self, request: Request | EmbedRequest, attempt: Attempt, begun_at: float
    ) -> AsyncGenerator[TokenEvent, None]:
        """Send a request, and yield its events until the end of the request or of the engine.

        Does not wait for a restart or run the request again, because the caller may have another engine for
        the request.

        Args:
            attempt: state of the request, from its arrival to its end.
            begun_at: time of the request's arrival, by the clock of `time.monotonic`.

        Raises:
            EngineDeadError: the engine cannot take the request, or ended while it ran the request.
            Other exceptions: as in `generate`.
        """
        return self._events(request, False, None, (attempt, begun_at))

    async def _events(
        self,
        request: Request | EmbedRequest,
        may_restart: bool,
        watch: RequestWatch | None = None,
        pooled: tuple[Attempt, float] | None = None,
    ) -> AsyncGenerator[TokenEvent, None]:
        """Yield the events of a request, across restarts of the engine.

        Args:
            pooled: arguments of `once`; None: the request was not sent by a pool.
        """
        attempt, begun_at = pooled or (Attempt(request.deferrable), time.monotonic())
        progress = RequestProgress(request, self._continuations, self._settings.adapters.digest_of)
        with (watch := watch or NoWatch()):
            try:
                while True:
                    rest, has_begun, has_tokens = progress.rest, False, False
                    life = await self._turn(attempt, request, begun_at, waits=pooled is None)
                    try:
                        async with contextlib.aclosing(life.events(in_time(rest, begun_at))) as events:
                            async for event in events:
                                if has_tokens and event.token_ids and event.finish_reason is None:
                                    # Most events.
                                    watch.num_tokens += len(event.token_ids)
                                    progress.sent.extend(event.token_ids)
                                    yield event
                                    continue
                                has_tokens = has_tokens or bool(event.token_ids)
                                if event.wait is None and not has_begun:
                                    has_begun = True
                                    self._quarantine.note_token(attempt)
                                progress.sent.extend(event.token_ids)
                                watch.note(event)
                                if event.finish_reason is not None:
                                    # Not after the loop: most readers close this generator at the last event.
                                    self._restarts.note_answer()
                                yield event
                        return
                    except EngineDeadError as error:
                        if pooled is not None:
                            raise
                        has_answered = has_begun and not (may_restart or progress.continues)
                        check_rerun(
                            attempt, error, is_lost=self._failure is not None, has_answered=has_answered
                        )
                    finally:
                        self._in_flight.pop(attempt, None)
                        self._sleep.note_end()
                    if has_begun and (restarted := progress.interrupt()) is not None:
                        watch.note(restarted)
                        yield restarted
            finally:
                self._quarantine.leave(attempt)

    async def _turn(
        self, attempt: Attempt, request: Request | EmbedRequest, begun_at: float, *, waits: bool
    ) -> ProcessEngineClient:
        """Wait until the request may be sent; count it as in flight, and return the client of the engine process.

        Args:
            waits: whether to wait for a restart; if not, raises EngineRestartingError during a restart.
        """
        while True:
            refusal = self._sleep.refusal_of_part
            if waits and refusal is not None and not (request.deferrable or attempt.was_sent):
                raise refusal
            if not self._wait.is_over:
                if not waits:
                    raise EngineRestartingError(self._outage or "the engine sleeps")
                await self._wait.wait(attempt, request, begun_at)
            if self._failure is not None:
                raise EngineDeadError(self._failure)
            await self._quarantine.wait_turn(attempt)
            if self._wait.is_over and self._failure is None:
                self._in_flight[attempt] = None if request.deferrable else self._sleep.note_start()
                attempt.was_sent = True
                return self._life

    def _life_now(self) -> ProcessEngineClient:
        if self._failure is not None:
            raise EngineDeadError(self._failure)
        if self._sleep.is_asleep and self.refusal is not None:
            raise self.refusal
        if self.outage is not None:
            raise EngineRestartingError(self.outage)
        return self._life

    async def _fall_asleep(self, command: Sleep) -> Answer:
        """End the process once no live request runs (see `EngineSleep.enter`)."""
        life = self._life_now()
        memory = await self._sleep.enter(life, self._num_live, command.timeout_s)
        self._wait.begin()
        await life.close()
        logger.info("The engine sleeps; its process has ended")
        return memory

    def _num_live(self) -> int:
        """Return the number of running client requests, without deferrable ones."""
        return self._sleep.num_live(whole for each, whole in self._in_flight.items() if not each.deferrable)

    async def _wake(self) -> Answer:
        """Start the process of a sleeping engine, and wait until it is ready."""
        if self._sleep.is_asleep:
            self._outage = "the engine wakes up"
            self._sleep.end()
            await self._wait.ended()
        return await self._life_now().control(GetMemory())

    def _created(self) -> ProcessEngineClient:
        life = self._new_life()
        life.call_on_death(lambda: self._note_death(life))
        life.call_on_quiet(self._wait.note_change)
        return life

    def _note_death(self, life: ProcessEngineClient) -> None:
        """Handle the first report of an engine's death: give up, or judge the requests in flight and restart."""
        is_known = life is not self._life or not self._wait.is_over or self._failure is not None
        if is_known or life.failure is None:
            return
        if (reason := self._restarts.reason_against()) is not None:
            self._give_up(f"{life.failure}; it is not started again: {reason}")
            return
        self._outage = f"{life.failure}; the engine is being restarted"
        self._wait.begin()
        if not life.was_ended_from_outside:
            self._settings.note_death()
        self._quarantine.judge(self._in_flight, KILL if life.was_ended_from_outside else CRASH)

    async def _keep_running(self) -> None:
        """Restart the engine whenever it dies, until no restart is allowed."""
        try:
            while self._failure is None:
                await self._life.wait_dead()
                self._note_death(self._life)
                while self._failure is None and not self._wait.is_over:
                    is_asleep = self._sleep.is_asleep  # it may be woken before its process has ended
                    await self._life.close()
                    if is_asleep:
                        await self._sleep.wait_awake()
                    await (self._replace() if is_asleep else self._restart())
        except Exception as error:
            logger.exception("The engine's supervisor failed")
            self._give_up(f"the engine's supervisor failed: {described(error)}")

    async def _restart(self) -> None:
        """Try once to start a new engine process, after a delay that grows with the number of tries."""
        if delay := self._restarts.begin():
            logger.info("The engine is started again in %.0f s", delay)
            await asyncio.sleep(delay)
        await self._replace()

    async def _replace(self) -> None:
        """Try once to start a new engine process; if that fails, note the reason."""
        begun = time.monotonic()
        self._life = life = self._created()
        try:
            await life.start()
            await self._settings.restore(life.control)
        except (LLMFWError, OSError) as error:
            logger.error("The engine could not be restarted: %s", error)
            self._restarts.note_start(failed=True)
            self._outage = f"the engine could not be restarted, and is tried again: {error}"
            if (reason := self._restarts.reason_against()) is not None:
                self._give_up(f"{error}; the engine is not started again: {reason}")
            return
        self._restarts.note_start(failed=False)
        if essence_of(life.info) != essence_of(self.info):
            self._give_up(
                f"the restarted engine is another one than before: {life.info}, and it was {self.info}"
            )
            return
        self._outage = None
        self._wait.end()
        logger.info(
            "The engine runs again after %.1f s (restarts: %d)", time.monotonic() - begun, self.num_restarts
        )

    def _give_up(self, reason: str) -> None:
        self._fail(reason)
        if self._restarts.is_on:
            logger.error("The engine is given up: %s", reason)
            self._lost.set()

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._wait.end()
