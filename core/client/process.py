"""Runs the engine in its own process: starts and ends the process, exchanges messages with it, and monitors
it.

A client handles a single process, from start to end. To replace a process, `supervisor` creates another
client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.control import Answer, Command
from llmfw.core.base.engine_info import ControlAnswer, EngineFailed, EngineInfo, EngineReport, EngineStats
from llmfw.core.base.errors import EngineDeadError, EngineError
from llmfw.core.base.request import EmbedRequest, EventBatch, ReportQuery, Request, ToEngine, TokenEvent
from llmfw.core.engine.process.heartbeat import HeartbeatReader, Reading, new_page
from llmfw.core.ipc.child import start_child
from llmfw.core.ipc.environment import child_environment
from llmfw.core.ipc.flight_recorder import WRITE_STACKS
from llmfw.core.ipc.wire import (
    Frames,
    Launch,
    decode_from_engine,
    encode,
    error_of,
    framed,
    new_pair,
    write_launch,
)

from .answers import ControlAnswers, StatsAnswers
from .cache_mirror import CacheMirror
from .client import EngineClient
from .end_recorder import EndRecorder
from .engine_log import EngineLog
from .streams import EventStreams
from .watchdog import LOOK_S, Hang, Watchdog, WatchdogLimits, state_of

logger = logging.getLogger(__name__)

ENGINE_COMMAND = (sys.executable, "-m", "llmfw.core.engine.process.process")
LAST_WORDS_S = 1.0  # to read an ended process's last messages; another process may hold the socket open
STOP_TIMEOUT_S = 5.0
STACKS_S = 0.5  # for a hung process to write the stacks of its threads: to its log, then to its record
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, 0)  # the engine handles SIGTERM and exits with 0


class _Channel(asyncio.Protocol):
    """Passes each payload from the engine to a handler, and records when the connection closes."""

    def __init__(self, handle: Callable[[bytes], None], has_ended: asyncio.Event) -> None:
        self._handle = handle
        self._has_ended = has_ended
        self._frames = Frames()

    def data_received(self, data: bytes) -> None:
        for payload in self._frames.feed(data):
            self._handle(payload)

    def connection_lost(self, error: Exception | None) -> None:
        self._has_ended.set()


class ProcessEngineClient(EngineClient):
    """Starts an engine process and communicates with it.

    Args:
        config: the engine's settings.
        command: command line to run; it must behave as `llmfw.core.engine.process.process` does.
        watchdog: time limits after which the engine counts as hung and is killed; None: no limits.
        recorder: records the end of the process; None: it is not recorded.

    Attributes:
        was_ended_from_outside: whether SIGKILL, SIGTERM or SIGSTOP ended the process. These signals come from
            outside. A request can cause such a signal only by taking too much memory.
        is_quiet: whether the watchdog has seen no sign of life lately (see `Watchdog.is_quiet`).
        mirror: copy of the prefix hashes that the engine has reported; empty for the only engine of a server.
    """

    def __init__(
        self,
        config: EngineConfig,
        command: Sequence[str] = ENGINE_COMMAND,
        watchdog: WatchdogLimits | None = None,
        recorder: EndRecorder | None = None,
    ) -> None:
        self._recorder = recorder
        self._config = config
        self._log = EngineLog(logger, config.place.label)
        self._command = command
        self._limits = watchdog
        self.was_ended_from_outside = False
        self.is_quiet = False
        self.mirror = CacheMirror(lambda: self._send(ReportQuery()))
        self._streams = EventStreams(self._send)
        self._stats = StatsAnswers(self._send)
        self._answers = ControlAnswers(self._send)
        self._info: EngineInfo | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._is_started = False
        self._closed = False
        self._dead = asyncio.Event()
        self._on_death: Callable[[], None] | None = None
        self._on_quiet: Callable[[], None] = lambda: None
        self._watching: asyncio.Task[None] | None = None

    @property
    def info(self) -> EngineInfo:
        if self._info is None:
            raise EngineError("the engine is not ready yet")
        return self._info

    @property
    def failure(self) -> str | None:
        return self._streams.failure

    @property
    def pid(self) -> int | None:
        """Process id of the engine process; None before it is started."""
        return self._process.pid if self._process else None

    @contextlib.contextmanager
    def launched(self) -> Iterator[None]:
        """Start the process before the event loop exists, and end it at the end of the block.

        `start` connects to the process.
        """
        self._process = self._spawn()
        try:
            yield
        finally:
            if not self._closed:
                self._expect_end()
                self._process.terminate()
                self._end_process(self._process)
                self._socket.close()

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[EngineInfo] = self._loop.create_future()
        self._has_ended = asyncio.Event()
        if self._process is None:
            self._process = self._spawn()
        self._is_started = True
        threading.Thread(
            target=self._wait, args=(self._process,), name="llmfw-engine-wait", daemon=True
        ).start()
        if self._limits is not None:
            self._watching = asyncio.create_task(self._watch(self._process, self._limits))
        try:
            self._transport, _ = await self._loop.create_unix_connection(
                lambda: _Channel(self._handle, self._has_ended), sock=self._socket
            )
            self._info = await self._ready
        except asyncio.CancelledError:  # the caller does not close a client that has not started
            self._hang_up()
            raise

    def show_stacks(self) -> None:
        """If the process is running, make it log the stacks of its threads."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1)

    def heartbeat(self) -> Reading:
        """Return the current heartbeat of the engine process, which must have been started."""
        return self._page.read()

    async def wait_dead(self) -> None:
        """Wait until the engine has failed or ended; `failure` gives the reason."""
        await self._dead.wait()

    def call_on_death(self, function: Callable[[], None]) -> None:
        """Register a function to call as soon as `failure` is set, before any other task can see it."""
        self._on_death = function

    def call_on_quiet(self, function: Callable[[], None]) -> None:
        """Register a function to call at each change of `is_quiet`."""
        self._on_quiet = function

    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        return self._streams.generate(request)

    def events(self, request: Request | EmbedRequest) -> AsyncGenerator[TokenEvent, None]:
        """Send a request to generate or to embed, and yield its events; see `EngineClient.generate`."""
        return self._streams.generate(request)

    async def embed(self, request: EmbedRequest) -> bytes:
        return await self._streams.embed(request)

    async def stats(self) -> EngineStats:
        return await self._stats.ask()

    async def control(self, command: Command) -> Answer:
        return await self._answers.ask(command)

    async def close(self) -> None:
        if not self._is_started or self._closed:
            return
        assert self._process is not None
        self._closed = True
        is_dead = self.failure is not None
        if not is_dead:
            self._expect_end()
        self._fail(EngineDeadError("the engine was closed"))
        if not is_dead:
            self._process.terminate()
        await asyncio.to_thread(self._end_process, self._process, LAST_WORDS_S if is_dead else STOP_TIMEOUT_S)
        self._record_end(self._process)
        if self._watching is not None:
            self._watching.cancel()
        self._hang_up()

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._socket, theirs = new_pair()
        page = new_page()
        flight = None if self._recorder is None else self._recorder.files
        try:
            with theirs:
                inherited = [theirs.fileno(), page, *(flight.descriptors if flight else ())]
                process = start_child(
                    self._command, child_environment(), stdin=subprocess.PIPE, pass_fds=inherited
                )
                launch = Launch(self._config, [theirs.fileno()], page, flight)
            self._page = HeartbeatReader(page)
        finally:
            os.close(page)
            if self._recorder is not None:
                self._recorder.note_started()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended, which `_wait` notices
            write_launch(process.stdin, launch)
        return process

    async def _watch(self, process: subprocess.Popen[bytes], limits: WatchdogLimits) -> None:
        """Check regularly whether the process hangs; if so, kill it."""
        watchdog = Watchdog(limits, self.heartbeat, lambda: state_of(process.pid))
        while not self._dead.is_set():
            if (hang := watchdog.look()) is not None:
                await self._on_hang(process, hang)
                return
            if watchdog.is_quiet != self.is_quiet:
                self.is_quiet = watchdog.is_quiet
                self._on_quiet()
            await asyncio.sleep(LOOK_S)

    async def _on_hang(self, process: subprocess.Popen[bytes], hang: Hang) -> None:
        self.was_ended_from_outside = hang.is_stopped
        if hang.is_stopped:
            self._log.error("%s. It cannot write its stacks. The engine is killed", hang.reason)
        else:
            self._log.error("%s. The stacks of its threads follow; then the engine is killed", hang.reason)
            process.send_signal(signal.SIGUSR1)
        if self._recorder is not None:
            self._recorder.note_hang(hang.reason)
        self._fail(EngineDeadError(hang.reason))
        if not hang.is_stopped:
            await asyncio.sleep(STACKS_S)
            await self._record_stacks(process)
        process.kill()

    async def _record_stacks(self, process: subprocess.Popen[bytes]) -> None:
        """Make the process record its stacks, after those for its log: faulthandler drops a dump within a dump."""
        if self._recorder is not None:
            process.send_signal(WRITE_STACKS)
            await asyncio.sleep(STACKS_S)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        returncode = process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for the exit
            self._loop.call_soon_threadsafe(self._begin_exit, returncode)

    def _begin_exit(self, returncode: int) -> None:
        self._exit = self._loop.create_task(self._on_exit(returncode))

    async def _on_exit(self, returncode: int) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_ended.wait(), LAST_WORDS_S)
        assert self._process is not None
        self._record_end(self._process)
        if self._closed:
            return
        how = _how_it_ended(returncode)
        if self.failure is None:
            self.was_ended_from_outside = returncode in FROM_OUTSIDE
            self._log.error("%s", how)
        when = "" if self._ready.done() else " while it started; its own lines above say more"
        self._fail(EngineDeadError(how + when))

    def _expect_end(self) -> None:
        if self._recorder is not None:
            self._recorder.expect_end()

    def _record_end(self, process: subprocess.Popen[bytes]) -> None:
        """Report an unexpected end of the process, which has ended."""
        if self._recorder is not None:
            returncode = process.returncode
            self._recorder.finish(returncode, _how_it_ended(returncode), self.heartbeat(), self._info)

    @staticmethod
    def _end_process(process: subprocess.Popen[bytes], patience_s: float = STOP_TIMEOUT_S) -> None:
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()

    def _hang_up(self) -> None:
        """Close this side of the socket."""
        if self._transport is not None:
            self._transport.abort()
        else:
            self._socket.close()

    def _send(self, message: ToEngine) -> None:
        # If the transport is closed, the engine has ended, and callers get that error.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(framed(encode(message)))

    def _handle(self, payload: bytes) -> None:
        message = decode_from_engine(payload)
        if isinstance(message, EventBatch):
            self._streams.deliver(message.events)
        elif isinstance(message, EngineStats):
            self._stats.take(message)
        elif isinstance(message, ControlAnswer):
            self._answers.take(message)
        elif isinstance(message, EngineReport):
            self.mirror.take(message)
        elif isinstance(message, EngineInfo):
            if not self._ready.done():
                self._ready.set_result(message)
        else:
            self._on_failed(message)

    def _on_failed(self, message: EngineFailed) -> None:
        if self._recorder is not None:
            self._recorder.note_failure(message, was_ready=self._ready.done())
        if self._ready.done():
            self._fail(EngineDeadError(f"the engine failed: {message.kind}: {message.message}"))
        else:
            self._fail(error_of(message))

    def _fail(self, error: Exception) -> None:
        self._streams.fail(str(error))
        self._answers.fail(str(error))
        self._stats.fail(str(error))
        self._dead.set()
        if self._on_death is not None:
            self._on_death()
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # if `start` was cancelled, nothing else retrieves the exception


def _how_it_ended(returncode: int) -> str:
    if returncode >= 0:
        return f"the engine process ended with exit code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = "an unknown signal"
    return f"the engine process was killed by {name} (signal {-returncode})"
