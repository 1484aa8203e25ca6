"""Decodes clients' images in separate processes, and serves tenants in turns."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from time import perf_counter

import msgspec

from llmfw.core.base.image import Image, image_of
from llmfw.core.ipc.fork_client import ForkClient
from llmfw.core.ipc.work_pool import WorkPool

from .limits import ImageLimits, ImageRefusedError, too_many_bytes
from .messages import Decoded, Job, Refused, decode_outcome, encode

COMMAND = (sys.executable, "-m", "llmfw.core.media.worker")

SILENT_S = 10.0
"""Seconds that a process may take in addition to the longest time of its child, before it is killed."""


class ImageDecoder:
    """Decodes images in child processes. All methods must be called in one event loop.

    Args:
        limits: limits of each image, and of the processes.
        observe: called with the seconds that each image took, without its time in the queue.
        command: command that starts a process.
    """

    def __init__(
        self,
        limits: ImageLimits,
        observe: Callable[[float], None] = lambda seconds: None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.limits = limits
        self._observe = observe
        self._pool = WorkPool(
            command, "images to be decoded", size=limits.workers, max_waiting=limits.max_waiting
        )

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the processes that wait for an image."""
        return self._pool.idle_pids

    async def decode(self, data: bytes, tenant: str = "") -> Image:
        """Decode an image file.

        Args:
            tenant: tenant of the request; tenants are served in turns.

        Raises:
            ImageRefusedError: the file is not accepted; gives the reason.
            OverloadedError: too many images wait, the process ended, or the server is shutting down.
            ComponentError: Pillow is not installed.
        """
        if len(data) > self.limits.file_bytes:
            raise too_many_bytes(len(data), self.limits)

        async def use(client: ForkClient) -> Image:
            started = perf_counter()
            image = await self._decoded(client, data)
            self._observe(perf_counter() - started)
            return image

        return await self._pool.run(use, tenant)

    async def close(self) -> None:
        """End the processes. Pending `decode` calls raise OverloadedError."""
        await self._pool.close()

    async def _decoded(self, client: ForkClient, data: bytes) -> Image:
        async with asyncio.timeout(self.limits.longest_s + SILENT_S):
            said = await client.ask(encode(Job(len(data), self.limits)), data)
        try:
            outcome: Decoded | Refused = decode_outcome(said)
        except msgspec.DecodeError as error:
            raise EOFError("the process answers with something else") from error
        if isinstance(outcome, Refused):
            raise ImageRefusedError(outcome.reason, outcome.message)
        return await self._image(client, outcome)

    async def _image(self, client: ForkClient, decoded: Decoded) -> Image:
        """Read the pixels from the memory file, and compute their digest here, which a child might forge."""
        width, height = decoded.width, decoded.height

        def read() -> Image:
            return image_of(width, height, client.take(3 * width * height))

        if min(width, height) < 1 or width * height > self.limits.pixels:
            raise EOFError("the process answers with a size that it must refuse")
        return await asyncio.to_thread(read)
