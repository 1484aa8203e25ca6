"""Prepares prompts with images, from the API process: one worker, one prompt at a time, within a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict

from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.base.errors import ComponentError, ComponentFailedError, OverloadedError, RequestError
from llmfw.core.base.image import Image
from llmfw.core.base.media import MediaPrompt
from llmfw.core.ipc.child import start_child
from llmfw.core.ipc.environment import child_environment
from llmfw.core.plugin.media_choice import media_processor_entry
from llmfw.core.plugin.registry import Entry, Registry

from .messages import (
    PREFIX,
    Broken,
    Done,
    FromWorker,
    Launch,
    Ready,
    Refused,
    ToWorker,
    Work,
    decode_from_worker,
    framed,
)

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "llmfw.core.image_prompts.worker")
START_S = 120.0
"""Seconds in which a worker must be ready: it may import torch."""
PROMPT_S = 30.0
"""Seconds in which a prompt must be prepared."""
MAX_BYTES = 4 << 30
"""Memory for one prompt."""


def prompter_for(info: EngineInfo, registry: Registry) -> ImagePrompter | None:
    """Return what prepares prompts with images for an engine; None if its model is served with text alone.

    Starts nothing: a worker is started for the first prompt.

    Raises:
        ConfigError: no media processor is installed.
    """
    return ImagePrompter(info.model, media_processor_entry(registry)) if info.reads_images else None


class ImagePrompter:
    """Prepares prompts with images. All methods must be called in one event loop.

    Prompts wait for each other in the order of their arrival.

    Args:
        model: the model's folder.
        entry: registry entry of the media processor.
        prompt_s: seconds in which a prompt must be prepared.
        max_bytes: memory for one prompt; None: no limit.
        command: command that starts a worker, whose standard input is a socket.
    """

    def __init__(
        self,
        model: str,
        entry: Entry,
        *,
        prompt_s: float = PROMPT_S,
        max_bytes: int | None = MAX_BYTES,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._launch = Launch(
            model, asdict(entry), list(sys.path), max_bytes if sys.platform == "linux" else None
        )
        self._entry = entry
        self._prompt_s = prompt_s
        self._command = command
        self._turn = asyncio.Lock()
        self._worker: _Worker | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None: there is none."""
        return None if self._worker is None else self._worker.process.pid

    async def prompt(self, text: str, images: Sequence[Image]) -> MediaPrompt:
        """Return the tokens of a prompt, and the images in it.

        Args:
            text: text with a placeholder for each image, in order.
            images: the images, at least one.

        Raises:
            RequestError: the images do not fit the text, or one of them cannot be prepared.
            ComponentError: the processor cannot be built.
            ComponentFailedError: the processor failed, or its process ended.
            OverloadedError: the server is shutting down.
        """
        async with self._turn:
            worker = await self._ready_worker()
            try:
                async with asyncio.timeout(self._prompt_s):
                    answer = await worker.ask(Work(text, list(images)))
            except TimeoutError:
                await self._end()
                logger.error(
                    "Images took more than %g s to prepare; their process is started again", self._prompt_s
                )
                raise RequestError(
                    f"the images took more than {self._prompt_s:g} s to prepare; send smaller ones",
                    param="messages",
                ) from None
            except (OSError, EOFError):
                await self._end()
                logger.error("The process that prepares images ended; it is started again")
                raise ComponentFailedError(
                    f"{self._entry.spoken} failed: its process ended while it prepared the images"
                ) from None
            except BaseException:  # the caller was cancelled; the answer would be taken for the next one's
                await self._end()
                raise
        match answer:
            case Done(prompt):
                return prompt
            case Refused(message, param):
                raise RequestError(message, param=param)
            case Broken(message, trace):
                logger.error("%s\n%s", message, trace)
                raise ComponentFailedError(message)
            case _:
                raise ComponentFailedError(f"{self._entry.spoken} failed: its process gave no answer")

    async def close(self) -> None:
        """End the worker. Prompts that wait raise OverloadedError."""
        self._closed = True
        await self._end()

    async def _ready_worker(self) -> _Worker:
        if self._closed:
            raise OverloadedError("the server is shutting down")
        if self._worker is None:
            self._worker = await _Worker.start(self._command)
            try:
                async with asyncio.timeout(START_S):
                    answer = await self._worker.ask(self._launch)
            except BaseException as error:
                await self._end()
                if isinstance(error, OSError | EOFError | TimeoutError):
                    raise ComponentError(
                        f"the process of {self._entry.spoken} does not start; look at the log"
                    ) from error
                raise
            if not isinstance(answer, Ready):
                await self._end()
                if isinstance(answer, Broken):
                    raise ComponentError(answer.message)
                raise ComponentError(f"the process of {self._entry.spoken} gives no answer; look at the log")
        return self._worker

    async def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.end()


class _Worker:
    """A worker process, and the streams of its socket."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, command: Sequence[str]) -> _Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.to_thread(
                start_child, command, child_environment(), stdin=theirs, stdout=subprocess.DEVNULL
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(process, reader, writer)

    async def ask(self, message: ToWorker) -> FromWorker:
        """Send a message, and return the answer.

        Raises:
            OSError, EOFError: the worker has ended.
        """
        self._writer.write(framed(message))
        await self._writer.drain()
        (length,) = PREFIX.unpack(await self._reader.readexactly(PREFIX.size))
        return decode_from_worker(await self._reader.readexactly(length))

    async def end(self) -> None:
        """Kill the process, and wait for its end."""
        self.process.kill()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        await asyncio.to_thread(self.process.wait)
