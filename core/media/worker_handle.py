"""A worker process that decodes images, as the API process sees it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Sequence

from llmfw.core.ipc.child import start_child
from llmfw.core.ipc.environment import child_environment
from llmfw.core.ipc.memory_file import new_memory_file
from llmfw.core.ipc.wire import Frames, framed

from .limits import ImageLimits
from .messages import Decoded, FromWorker, Job, Ready, Refused, Unable, decode_answer, encode

COMMAND = (sys.executable, "-m", "llmfw.core.media.worker")

START_S = 60.0
"""Seconds in which a worker must have loaded its decoders."""

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # threads do not survive a fork


class WorkerHandle:
    """A worker process, which decodes one image at a time. `start` makes one.

    Attributes:
        process: the process.
    """

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket, memory: int) -> None:
        self.process = process
        self._sock = sock
        self._memory = memory
        self._frames = Frames()
        self._is_ready = False

    @classmethod
    async def start(cls, command: Sequence[str] = COMMAND) -> WorkerHandle:
        """Start a worker. It may be sent an image at once."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        memory = new_memory_file("llmfw-image", 0)

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

    async def decode(self, data: bytes, limits: ImageLimits) -> Decoded | Refused | Unable:
        """Send a file, and return the answer to it.

        Raises:
            EOFError: the worker has ended, or does not send what it should.
            TimeoutError: the worker was not ready in time.
        """
        if not self._is_ready:
            async with asyncio.timeout(START_S):
                ready = await self._receive()
            if isinstance(ready, Unable):
                return ready
            self._is_ready = True
        await asyncio.to_thread(self._put, data)
        await asyncio.get_running_loop().sock_sendall(self._sock, framed(encode(Job(len(data), limits))))
        answer = await self._receive()
        if isinstance(answer, Ready):
            raise EOFError("the worker has answered out of turn")  # noqa: TRY004 - not the caller's mistake
        return answer

    def take(self, size: int) -> bytes:
        """Return the pixels of the last image, and free the memory that they had.

        Raises:
            EOFError: there are fewer than `size` bytes.
        """
        pixels = os.pread(self._memory, size, 0)
        os.ftruncate(self._memory, 0)
        if len(pixels) != size:
            raise EOFError("the worker has written fewer pixels than it says")
        return pixels

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

    async def _receive(self) -> FromWorker:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(self._sock, 2**16):
            if payloads := self._frames.feed(data):
                answer: FromWorker = decode_answer(payloads[0])
                return answer
        raise EOFError("the worker has ended")
