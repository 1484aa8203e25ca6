"""Makes prompts of texts and images with the model's media processor, in separate processes."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict

import msgspec

from llmfw.core.base.errors import ComponentError, ComponentFailedError, RequestError
from llmfw.core.base.image import Image
from llmfw.core.base.media import MediaPrompt
from llmfw.core.ipc.fork_client import ForkClient
from llmfw.core.ipc.work_pool import WorkPool
from llmfw.core.plugin.registry import Entry

from .limits import CODE
from .prompt_messages import (
    Failed,
    Outcome,
    PromptJob,
    Rejected,
    Setup,
    Source,
    decode_outcome,
    decode_prompt,
    encode,
)

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "llmfw.core.media.prompt_worker")
NUM_PROCESSES = 2
MAX_WAITING = 512
MAX_PROMPT_BYTES = 2**30
CPU_S = 20.0
MEMORY_MB = 4096
LARGE = 2**22
"""Bytes of pixels that are encoded in a thread, so that they do not hold up the event loop."""
SILENT_S = 10.0
"""Seconds that a process may take in addition to the longest time of its child, before it is killed."""


class ImagePrompter:
    """Makes prompts with images. All methods must be called in one event loop.

    Args:
        entry: the media processor.
        model: the model's folder.
        cpu_s, memory_mb: limits of each prompt, as in `PromptJob`.
        command: command that starts a process.
    """

    def __init__(
        self,
        entry: Entry,
        model: str,
        *,
        cpu_s: float = CPU_S,
        memory_mb: int = MEMORY_MB,
        command: Sequence[str] = COMMAND,
    ) -> None:
        setup = msgspec.json.encode(Setup(asdict(entry), model)).decode()
        self._entry = entry
        self._cpu_s = cpu_s
        self._memory_mb = memory_mb
        self._pool = WorkPool(
            [*command, setup], "images to be prepared", size=NUM_PROCESSES, max_waiting=MAX_WAITING
        )

    async def start(self) -> None:
        """Start a process, and wait until it has built the media processor.

        Raises:
            ComponentError: it cannot be built.
            OverloadedError: the process ended or took too long.
        """

        async def use(client: ForkClient) -> None:
            """Do nothing: the pool has waited until the process was ready."""

        await self._pool.run(use)

    async def prompt(self, text: str, images: Sequence[Image], tenant: str = "") -> MediaPrompt:
        """Return a prompt as tokens.

        Args:
            text: the rendered chat, with the model's own placeholder for each image.
            images: the images in the order of their placeholders.
            tenant: tenant of the request; tenants are served in turns.

        Raises:
            RequestError: the text does not have a placeholder for each image, or an image cannot be prepared.
            ComponentError: the media processor cannot be built, or makes something other than a prompt.
            ComponentFailedError: the media processor raised an exception, which is logged.
            OverloadedError: too many prompts wait, or the process ended.
        """
        source = Source(text, tuple(images))
        is_large = sum(len(image.pixels) for image in images) > LARGE
        data = await asyncio.to_thread(encode, source) if is_large else encode(source)

        async def use(client: ForkClient) -> MediaPrompt:
            return await self._made(client, data)

        return await self._pool.run(use, tenant)

    async def close(self) -> None:
        """End the processes."""
        await self._pool.close()

    async def _made(self, client: ForkClient, data: bytes) -> MediaPrompt:
        job = PromptJob(len(data), self._cpu_s, self._memory_mb)
        async with asyncio.timeout(job.longest_s + SILENT_S):
            said = await client.ask(encode(job), data)
        try:
            outcome: Outcome = decode_outcome(said)
        except msgspec.DecodeError as error:
            raise EOFError("the process answers with something else") from error
        if isinstance(outcome, Rejected):
            raise RequestError(outcome.message, param="messages", code=outcome.code)
        if isinstance(outcome, Failed):
            logger.error("%s failed in process():\n%s", self._entry, outcome.trace)
            raise ComponentFailedError(f"{self._entry.spoken} failed in process(): {outcome.kind}")
        if outcome.size > MAX_PROMPT_BYTES:
            raise RequestError(
                f"the images take {outcome.size} bytes as the model reads them; at most {MAX_PROMPT_BYTES} are possible: send "
                "fewer or smaller ones",
                param="messages",
                code=CODE,
            )
        return await asyncio.to_thread(self._taken, client, outcome.size)

    def _taken(self, client: ForkClient, size: int) -> MediaPrompt:
        try:
            prompt: MediaPrompt = decode_prompt(client.take(size))
        except msgspec.DecodeError as error:
            raise ComponentError(
                f"{self._entry} made something else than a prompt in process(): {error}"
            ) from error
        return prompt
