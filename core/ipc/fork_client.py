"""A process that runs jobs in forked children (`ForkServer`), as its parent sees it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Sequence

from .child import start_child
from .environment import child_environment
from .fork_server import READY
from .memory_file import new_memory_file
from .wire import Frames, framed

START_S = 120.0
"""Seconds in which a process must have loaded what its jobs need."""

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # threads do not survive a fork


class UnableError(Exception):
    """The process cannot run any job; the text is the reason."""


class ForkClient:
    """A process that runs one job at a time. `start` makes one.

    Attributes:
        process: the process.
        is_ready: whether it can run jobs; see `ready`.
    """

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket, memory: int) -> None:
        self.process = process
        self._sock = sock
        self._memory = memory
        self._frames = Frames()
        self.is_ready = False

    @classmethod
    async def start(cls, command: Sequence[str]) -> ForkClient:
        """Start a process. It may be sent a job at once.

        Args:
            command: program and arguments. The descriptor of the memory file becomes the last argument.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        memory = new_memory_file("llmfw-job", 0)

        def launch() -> subprocess.Popen[bytes]:
            environment = {**child_environment(), **_ENVIRONMENT}
            return start_child(
                [*command, str(memory)],
                environment,
                stdin=theirs.fileno(),
                pass_fds=(memory,),
                start_new_session=True,
            )

        try:
            with theirs:
                return cls(await asyncio.to_thread(launch), ours, memory)
        except BaseException:
            ours.close()
            os.close(memory)
            raise

    async def ready(self) -> None:
        """Wait until the process can run jobs.

        Raises:
            UnableError: the process cannot run jobs.
            EOFError: the process has ended.
            TimeoutError: the process was not ready in time.
        """
        if self.is_ready:
            return
        async with asyncio.timeout(START_S):
            said = await self._receive()
        if said != READY:
            raise UnableError(said.decode(errors="replace"))
        self.is_ready = True

    async def ask(self, job: bytes, data: bytes) -> bytes:
        """Put data into the memory file, send a job, and return the answer to it. Call `ready` before.

        Raises:
            EOFError: the process has ended.
        """
        await asyncio.to_thread(self._put, data)
        await asyncio.get_running_loop().sock_sendall(self._sock, framed(job))
        return await self._receive()

    def take(self, size: int) -> bytes:
        """Return the bytes that the last job has written to the memory file, and free the memory.

        Raises:
            EOFError: the memory file has fewer than `size` bytes.
        """
        data = os.pread(self._memory, size, 0)
        os.ftruncate(self._memory, 0)
        if len(data) != size:
            raise EOFError("the process has written fewer bytes than it says")
        return data

    async def end(self) -> None:
        """Kill the process, whose child dies with it, and wait for its end."""
        self.process.kill()
        await asyncio.to_thread(self.process.wait)
        self._sock.close()
        os.close(self._memory)

    def _put(self, data: bytes) -> None:
        os.ftruncate(self._memory, 0)
        view, place = memoryview(data), 0
        while place < len(view):
            place += os.pwrite(self._memory, view[place:], place)

    async def _receive(self) -> bytes:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(self._sock, 2**16):
            if payloads := self._frames.feed(data):
                return payloads[0]
        raise EOFError("the process has ended")
