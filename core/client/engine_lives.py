"""Keeps one engine process running: starts it, restarts it when it ends, and replaces it on command.

`supervisor` sends requests to it; `process` handles a single process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator

from llmfw.core.base.control import Answer, Command, GetMemory, MemoryInfo, Sleep, Wake
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
from llmfw.core.base.weights_command import LoadWeights

from .cache_mirror import CacheMirror
from .engine_log import EngineLog
from .engine_wait import WAIT_S, EngineWait
from .launched import LaunchedEngineClient
from .process import ProcessEngineClient
from .quarantine import CRASH, KILL, Attempt, Quarantine, Witnesses
from .restarts import RestartPolicy, Restarts
from .run_time_settings import RunTimeSettings
from .sleeping import LOADING, EngineSleep
from .weights_swap import WeightsSwap
from .whole_request import WholeRequest

logger = logging.getLogger(__name__)


class EngineLives(LaunchedEngineClient):
    """Starts an engine process, and replaces it whenever it ends.

    Args:
        new_life: function that creates the client of one engine process.
        policy: whether and how often to restart the engine; None: the defaults of `RestartPolicy`.
        wait_s: seconds that a new request waits for a restart (see WAIT_S).
        witnesses: requests of all engines of the server; None: this is the only engine.
        weights: checkpoint that `new_life` serves, which can be replaced; None: it cannot.
        label: number or model of the engine, for the log; None: it is the server's only one.

    Attributes:
        settings: settings that were changed at run time, for engines that start from now on.
    """

    def __init__(
        self,
        new_life: Callable[[], ProcessEngineClient],
        policy: RestartPolicy | None = None,
        wait_s: float = WAIT_S,
        witnesses: Witnesses | None = None,
        weights: WeightsSwap | None = None,
        label: int | str | None = None,
    ) -> None:
        self._weights = weights or WeightsSwap(lambda path: new_life(), is_fixed=True)
        self._log = EngineLog(logger, label)
        self._new_life = new_life
        self._wait = EngineWait(lambda: self._outage, wait_s)
        self._life = self._created()
        self._restarts = Restarts(policy or RestartPolicy())
        self._quarantine = Quarantine(witnesses)
        self._in_flight: dict[Attempt, WholeRequest | None] = {}
        self._info: EngineInfo | None = None
        self.settings = RunTimeSettings()
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
        return self._failure or (None if self._sleep.is_asleep and self.refusal else self._outage)

    @property
    def refusal(self) -> NotReadyError | None:
        return self._sleep.refusal

    @property
    def num_restarts(self) -> int:
        return self._restarts.total

    @property
    def checkpoint(self) -> str:
        """Folder of the checkpoint that the current process serves, or that the next one will; or a hub id."""
        return self._weights.path

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
        self.settings.adapters.begin(self._info.adapters)
        self._wait.end()
        self._keeping = asyncio.create_task(self._keep_running())

    async def wait_lost(self) -> EngineLostError:
        await self._lost.wait()
        return EngineLostError(self._failure)

    def stop_restarting(self) -> None:
        self._restarts.stop()

    def show_stacks(self) -> None:
        self._life.show_stacks()

    async def stats(self) -> EngineStats:
        return await self._life_now().stats()

    async def control(self, command: Command) -> Answer:
        if isinstance(command, Sleep | Wake | LoadWeights):
            async with self._sleep.changing:
                return await self._change_process(command)
        if isinstance(command, ReplicaCommand):
            raise one_engine()
        if not (self.is_usable or self._failure) and (answer := self.settings.put_off(command)):
            return answer
        answer = await self._life_now().control(command)
        self.settings.note(command, answer)
        return answer

    async def close(self) -> None:
        self._fail("the engine was closed")
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        await self._life.close()

    def _life_now(self) -> ProcessEngineClient:
        if self._failure is not None:
            raise EngineDeadError(self._failure)
        if self._sleep.is_asleep and self.refusal is not None:
            raise self.refusal
        if self.outage is not None:
            raise EngineRestartingError(self.outage)
        return self._life

    async def _change_process(self, command: Sleep | Wake | LoadWeights) -> Answer:
        if isinstance(command, Wake):
            return await self._wake("the engine wakes up")
        life = self._life_now()
        if isinstance(command, LoadWeights):
            self._weights.check()
        memory = await self._sleep.enter(life, self._num_live, command)  # no live request runs now
        if isinstance(command, LoadWeights):
            self._outage = LOADING
            self._weights.begin(command)
        self._wait.begin()
        await life.close()
        if isinstance(command, Sleep):
            self._log.info("The engine sleeps; its process has ended")
            return memory
        memory = await self._wake(LOADING)
        self._weights.check_loaded()
        return self._weights.describe(self.info, memory)

    def _num_live(self) -> int:
        """Return the number of running client requests, without deferrable ones."""
        return self._sleep.num_live(whole for each, whole in self._in_flight.items() if not each.deferrable)

    async def _wake(self, outage: str) -> MemoryInfo:
        """Start the process of a sleeping engine, and wait until it is ready."""
        if self._sleep.is_asleep:
            self._outage = outage
            self._sleep.end()
            await self._wait.ended()
        memory = await self._life_now().control(GetMemory())
        assert isinstance(memory, MemoryInfo)
        return memory

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
            self.settings.note_death()
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
        except Exception as error:  # noqa: BLE001 - whatever it is, requests must not wait for ever
            self._log.exception("The engine's supervisor failed")
            self._give_up(f"the engine's supervisor failed: {described(error)}")

    async def _restart(self) -> None:
        """Try once to start a new engine process, after a delay that grows with the number of tries."""
        if delay := self._restarts.begin():
            self._log.info("The engine is started again in %.0f s", delay)
            await asyncio.sleep(delay)
        await self._replace()

    async def _replace(self) -> None:
        """Try once to start a new engine process; if that fails, note the reason."""
        begun = time.monotonic()
        self._life = life = self._created()
        try:
            await life.start()
            await self.settings.restore(life.control)
        except (LLMFWError, OSError) as error:
            self._log.error("The engine could not be restarted: %s", error)
            if self._weights.fall_back(error):
                return
            self._restarts.note_start(failed=True)
            self._outage = f"the engine could not be restarted, and is tried again: {error}"
            if (reason := self._restarts.reason_against()) is not None:
                self._give_up(f"{error}; the engine is not started again: {reason}")
            return
        self._restarts.note_start(failed=False)
        if not self._weights.is_alike(self.info, life.info):
            reason = f"the restarted engine is another one than before: {life.info}, and it was {self.info}"
            if not self._weights.fall_back(reason):
                self._give_up(reason)
            return
        if self._weights.end():
            self._info = life.info
        self._outage = None
        self._wait.end()
        self._log.info(
            "The engine runs again after %.1f s (restarts: %d)", time.monotonic() - begun, self.num_restarts
        )

    def _give_up(self, reason: str) -> None:
        self._fail(reason)
        if self._restarts.is_on:
            self._log.error("The engine is given up: %s", reason)
            self._lost.set()

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._wait.end()
