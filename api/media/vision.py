"""What a server needs to answer requests with images: their reader, and the model's own image processor."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import msgspec

from llmfw.core.base.errors import LLMFWError, RequestError
from llmfw.core.base.image import Image
from llmfw.core.base.media import MediaPrompt
from llmfw.core.media.limits import CODE

from .prepared import PreparedImages
from .reader import ImageReader

logger = logging.getLogger(__name__)


class ImagePrompts(Protocol):
    """Makes the served model's prompts from texts with images (`core.media.prompter.ImagePrompter`)."""

    async def start(self) -> None:
        """Load what is needed, so that the first prompt does not wait for it."""

    async def prompt(self, text: str, images: Sequence[Image], tenant: str = "") -> MediaPrompt:
        """Return a prompt as tokens.

        Args:
            text: the rendered chat, with the model's own placeholder for each image.
            images: the images in the order of their placeholders.
            tenant: tenant of the request; tenants are served in turns.

        Raises:
            RequestError: the text does not have a placeholder for each image, or an image has a size that the model
                cannot read.
        """

    async def close(self) -> None:
        """End what was started."""


class Vision(msgspec.Struct, frozen=True):
    """The reader of images, and the model's image processor.

    Attributes:
        reader: reads the images of requests.
        prompts: makes prompts from the images.
        prepared: limits the memory of what `prompts` makes.
        is_for_batches: whether the requests are deferrable.
    """

    reader: ImageReader
    prompts: ImagePrompts
    prepared: PreparedImages = msgspec.field(default_factory=PreparedImages)
    is_for_batches: bool = False

    def for_batches(self) -> Vision:
        """Return the same for deferrable requests, which leave most of the memory to others."""
        return msgspec.structs.replace(self, is_for_batches=True)

    async def prompt(self, text: str, images: Sequence[Image], tenant: str) -> MediaPrompt:
        """Return a prompt as tokens, once there is memory for it (see `ImagePrompts.prompt`).

        Raises:
            RequestError: as in `ImagePrompts.prompt`.
            OverloadedError: too many requests wait.
        """
        is_patient = self.is_for_batches
        async with self.prepared.turn(tenant, is_patient=is_patient):
            try:
                found = await self.prompts.prompt(text, images, tenant)
            except RequestError as error:
                self.reader.counts.refused["model"] += error.code == CODE
                raise
            self.prepared.count(tenant, found.spans, is_patient=is_patient)
        return found

    async def start(self) -> None:
        """Load what reading images needs. Errors are logged, and requests with images report them again."""
        try:
            await self.prompts.start()
        except LLMFWError as error:
            logger.error("Images cannot be prepared for the model: %s", error)

    async def close(self) -> None:
        """End all processes."""
        await self.reader.close()
        await self.prompts.close()
