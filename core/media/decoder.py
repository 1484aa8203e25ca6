"""Sends clients' images from the API process to workers that decode them, tenants in turns."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter

import msgspec

from llmfw.core.base.errors import ComponentError, LLMFWError, OverloadedError
from llmfw.core.base.image import Image, image_of
from llmfw.core.ipc.fair_queue import FairQueue

from .limits import ImageLimits, ImageRefusedError, too_many_bytes
from .messages import Decoded, Refused, Unable
from .worker_handle import COMMAND, WorkerHandle

logger = logging.getLogger(__name__)

SILENT_S = 10.0
"""Seconds that a worker may take in addition to the longest time of its child, before it is killed."""


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    """An image that waits for a worker, and the future of its caller."""

    id: int
    tenant: str
    data: bytes
    decoded: asyncio.Future[Image]


class ImageDecoder:
    """Decodes images in worker processes. All methods must be called in one event loop.

    Args:
        limits: limits of each image, and of the workers.
        observe: called with the seconds that each image took, without its time in the queue.
        command: command that starts a worker.
    """

    def __init__(
        self,
        limits: ImageLimits,
        observe: Callable[[float], None] = lambda seconds: None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.limits = limits
        self._observe = observe
        self._command = command
        self._ids = itertools.count(1)
        self._queue = FairQueue[_Waiting](limits.max_waiting)
        self._idle: list[WorkerHandle] = []
        self._running: dict[asyncio.Task[None], _Waiting] = {}
        self._closed = False

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers that wait for an image."""
        return [worker.process.pid for worker in self._idle]

    async def decode(self, data: bytes, tenant: str = "") -> Image:
        """Decode an image file.

        Args:
            tenant: tenant of the request; tenants are served in turns.

        Raises:
            ImageRefusedError: the file is not accepted; gives the reason.
            OverloadedError: too many images wait, the worker ended, or the server is shutting down.
            ComponentError: Pillow is not installed.
        """
        if self._closed:
            raise OverloadedError("the server is shutting down")
        if len(data) > self.limits.file_bytes:
            raise too_many_bytes(len(data), self.limits)
        job = _Waiting(next(self._ids), tenant, data, asyncio.get_running_loop().create_future())
        dropped = self._queue.shed() if self._queue.add(job) else job
        if dropped is not None:
            _fail(
                dropped,
                OverloadedError(f"{len(self._queue)} images wait to be decoded already; try again later"),
            )
        self._advance()
        try:
            return await job.decoded
        finally:
            self._queue.remove(job.id)

    async def close(self) -> None:
        """End the workers. Pending `decode` calls raise OverloadedError."""
        self._closed = True
        while (job := self._queue.pop()) is not None:
            _fail(job, OverloadedError("the server is shutting down"))
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for worker in self._idle:
            await worker.end()
        self._idle.clear()

    def _advance(self) -> None:
        """Start waiting jobs while fewer workers run than are allowed."""
        while len(self._running) < self.limits.workers and (job := self._queue.pop()) is not None:
            if job.decoded.done():
                continue
            task = asyncio.create_task(self._run(job))
            self._running[task] = job
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        job = self._running.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            known = isinstance(error, LLMFWError)
            if not known:
                logger.error("Decoding an image failed", exc_info=error)
            _fail(
                job,
                error if known else OverloadedError("the image could not be decoded now; try again later"),
            )
        _fail(job, OverloadedError("the server is shutting down"))
        if not self._closed:
            self._advance()

    async def _run(self, job: _Waiting) -> None:
        """Decode one image, and keep its worker for the next one."""
        worker = self._idle.pop() if self._idle else await WorkerHandle.start(self._command)
        keep = False
        try:
            started = perf_counter()
            async with asyncio.timeout(self.limits.longest_s + SILENT_S):
                outcome = await worker.decode(job.data, self.limits)
            if isinstance(outcome, Unable):
                raise ComponentError(outcome.message)
            keep = True
            if isinstance(outcome, Refused):
                raise ImageRefusedError(outcome.reason, outcome.message)
            image = await self._image(worker, outcome)
            self._observe(perf_counter() - started)
            with suppress(asyncio.InvalidStateError):  # the caller no longer waits
                job.decoded.set_result(image)
        except (TimeoutError, EOFError, OSError) as error:
            keep = False
            logger.warning("A process that decodes images ended or hung; the next image gets a new one")
            raise OverloadedError("the process that decodes images ended; try again later") from error
        except asyncio.CancelledError:
            keep = False
            raise
        finally:
            if keep and not self._closed:
                self._idle.append(worker)
            else:
                await worker.end()

    async def _image(self, worker: WorkerHandle, decoded: Decoded) -> Image:
        """Read the pixels from a worker's memory, and compute their digest here, as a child might forge it."""
        width, height = decoded.width, decoded.height

        def read() -> Image:
            pixels = worker.take(3 * width * height)
            return image_of(width, height, pixels)

        if min(width, height) < 1 or width * height > self.limits.pixels:
            raise EOFError("the worker answers with a size that it must refuse")
        return await asyncio.to_thread(read)


def _fail(job: _Waiting, error: BaseException) -> None:
    if not job.decoded.done():
        job.decoded.set_exception(error)
