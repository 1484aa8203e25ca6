"""Starts the grammar supervisor from the API process, sends it clients' grammars and awaits the verdicts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

from llmfw.core.base.errors import ComponentError, GrammarCostError, LLMFWError, OverloadedError, RequestError
from llmfw.core.base.request import GrammarSpec
from llmfw.core.ipc.child import start_child
from llmfw.core.ipc.environment import child_environment
from llmfw.core.ipc.wire import Frames, framed

from .messages import (
    TIMEOUT,
    TOO_COMPLEX,
    Cancel,
    FromSupervisor,
    Job,
    Launch,
    Ping,
    Ready,
    Unbuilt,
    Verdict,
    decode_answer,
    encode,
)

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "llmfw.core.grammars.supervisor")
TRIES = 2
"""Maximum number of supervisors to which a grammar is sent, if they end without an answer."""

PING_S = 5.0
"""Seconds between two pings to a supervisor that has a job."""
SILENT_S = 20.0
"""Seconds without a message after which a supervisor is killed and replaced."""
BUILD_S = 300.0
"""Limit in place of `SILENT_S` while the supervisor builds the backend and cannot answer pings."""

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Environment variables that keep libraries from starting threads, since threads do not survive a fork."""


class BackendFailureError(LLMFWError):
    """The grammar backend raised an unexpected exception, or contradicted itself.

    Args:
        detail: traceback of the exception.
        where: method that failed, as in "accept()".
    """

    def __init__(self, message: str, detail: str, where: str) -> None:
        super().__init__(message)
        self.detail = detail
        self.where = where


class GrammarProver:
    """Tries out grammars by compiling them in other processes. All methods must be called in one event loop.

    Args:
        launch: function that returns the supervisor's settings; called in a thread when a supervisor is
            started.
        command: command that starts a supervisor; the standard input of the supervisor is a socket to the API
            process.
    """

    def __init__(self, launch: Callable[[], Launch], command: Sequence[str] = COMMAND) -> None:
        self._make_launch = launch
        self._command = command
        self._ids = itertools.count(1)
        self._channel: _Channel | None = None
        self._starting = asyncio.Lock()
        self._closed = False
        self._refusal: str | None = None  # of the backend, for the tokenizer

    @property
    def pid(self) -> int | None:
        """Process id of the supervisor; None if it has not started yet or has ended."""
        return self._channel.process.pid if self._channel and not self._channel.has_ended else None

    async def prove(self, spec: GrammarSpec, tenant: str = "") -> GrammarSpec:
        """Try out a client's grammar, and return the spec for the engine to compile.

        If the caller is cancelled, compiling is cancelled, too.

        Raises:
            RequestError: the grammar is invalid, or the backend cannot constrain outputs of this tokenizer.
            GrammarCostError: the grammar exceeds a limit.
            OverloadedError: too many grammars wait, the supervisor ended twice without a verdict, or the
                server is shutting down.
            ComponentError: the backend cannot be built.
            BackendFailureError: the backend raised an unexpected exception.
        """
        if self._refusal is not None:
            raise RequestError(self._refusal)
        for _ in range(TRIES):
            channel = await self._open()
            verdict = await channel.ask(Job(next(self._ids), tenant, spec))
            if verdict is not None:
                return _spec_of(verdict, spec, tenant)
            if (unbuilt := channel.unbuilt) is not None:
                if not unbuilt.is_refusal:
                    raise ComponentError(unbuilt.message)
                self._refusal = unbuilt.message
                raise RequestError(self._refusal)
            logger.error("The process that compiles grammars ended; it is started again")
        raise OverloadedError("the process that compiles grammars ended twice; try again later")

    async def close(self) -> None:
        """End the supervisor and its children. Pending `prove` calls raise OverloadedError."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()

    async def _open(self) -> _Channel:
        async with self._starting:
            if self._closed:
                raise OverloadedError("the server is shutting down")
            if self._channel is not None and self._channel.has_ended:
                await self._channel.close()
                self._channel = None
            if self._channel is None:
                launch = await asyncio.to_thread(self._make_launch)
                self._channel = await _Channel.open(self._command, launch)
            return self._channel


class _Channel(asyncio.Protocol):
    """Connection to one supervisor process, with its pending jobs.

    Attributes:
        process: the supervisor process.
        has_ended: whether the connection is closed.
        unbuilt: reason why the supervisor could not build the backend, or None.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.has_ended = False
        self.unbuilt: Unbuilt | None = None
        self._frames = Frames()
        self._waiting: dict[int, asyncio.Future[Verdict | None]] = {}
        self._is_ready = False
        self._num_messages = 0
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, command: Sequence[str], launch: Launch) -> _Channel:
        """Start a supervisor. Jobs may be sent at once; they wait until the supervisor is ready."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.to_thread(_start, command, theirs)
        loop = asyncio.get_running_loop()
        transport, channel = await loop.create_unix_connection(lambda: cls(process), sock=ours)
        channel._transport = transport
        transport.write(framed(encode(launch)))
        return channel

    async def ask(self, job: Job) -> Verdict | None:
        """Send a job and return its verdict; None if the supervisor ends without one."""
        if self.has_ended:
            return None
        future: asyncio.Future[Verdict | None] = asyncio.get_running_loop().create_future()
        self._waiting[job.id] = future
        self._transport.write(framed(encode(job)))
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            return await future
        except asyncio.CancelledError:
            if not self.has_ended:
                self._transport.write(framed(encode(Cancel(job.id))))
            raise
        finally:
            self._waiting.pop(job.id, None)

    async def close(self) -> None:
        """Close the connection, which ends the supervisor, and wait for its exit; kill it after 2 seconds."""
        self._transport.abort()
        self._end()
        try:
            await asyncio.to_thread(self.process.wait, 2.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)

    async def _watch(self) -> None:
        """Kill the supervisor if it does not answer pings while jobs wait, because it hangs or is stopped."""
        silent_s, seen = 0.0, self._num_messages
        while self._waiting and not self.has_ended:
            self._transport.write(framed(encode(Ping())))
            await asyncio.sleep(PING_S)
            silent_s = silent_s + PING_S if self._num_messages == seen else 0.0
            seen = self._num_messages
            if silent_s >= (SILENT_S if self._is_ready else BUILD_S):
                logger.error("The process that compiles grammars gave no sign of life for %.0f s", silent_s)
                self.process.kill()
                self._transport.abort()
                return

    def data_received(self, data: bytes) -> None:
        for payload in self._frames.feed(data):
            self._handle(decode_answer(payload))

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _handle(self, message: FromSupervisor) -> None:
        self._num_messages += 1
        self._is_ready |= isinstance(message, Ready)
        if isinstance(message, Verdict):
            future = self._waiting.get(message.id)
            if future is not None and not future.done():
                future.set_result(message)
        elif isinstance(message, Unbuilt):
            self.unbuilt = message

    def _end(self) -> None:
        self.has_ended = True
        if self._watching is not None:
            self._watching.cancel()
        with contextlib.suppress(ProcessLookupError):
            self.process.poll()
        for future in self._waiting.values():
            if not future.done():
                future.set_result(None)

    _transport: asyncio.WriteTransport


def _start(command: Sequence[str], sock: socket.socket) -> subprocess.Popen[bytes]:
    """Start a supervisor in its own session, so that only the API process handles the terminal's Ctrl-C."""
    environment = {**child_environment(), **_ENVIRONMENT}
    return start_child(command, environment, stdin=sock.fileno(), start_new_session=True)


def _spec_of(verdict: Verdict, spec: GrammarSpec, tenant: str) -> GrammarSpec:
    """Return the verdict's spec, or raise its error."""
    if verdict.spec is not None:
        return verdict.spec
    if verdict.outcome == "overloaded":
        raise OverloadedError(verdict.message)
    if verdict.outcome == "failed":
        raise BackendFailureError(verdict.message, verdict.detail, verdict.where or "compile()")
    if verdict.outcome == "killed":
        logger.warning(
            "A grammar was refused (%s, %d characters, tenant %r): %s",
            spec.kind,
            len(spec.source),
            tenant,
            verdict.message,
        )
    if verdict.code in (TOO_COMPLEX, TIMEOUT):
        raise GrammarCostError(verdict.message, code=verdict.code)
    raise RequestError(verdict.message, code=verdict.code or None)
