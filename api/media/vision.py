"""What a server needs to answer requests with images: their reader, and the model's own image processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from llmfw.core.base.image import Image

from .reader import ImageReader


class MadePrompt(Protocol):
    """A prompt with images, as the model's image processor makes it."""

    @property
    def token_ids(self) -> list[int]:
        """The token ids of the prompt."""

    @property
    def spans(self) -> tuple[Any, ...]:
        """The images in the prompt, in order, as the engine reads them."""


class ImagePrompts(Protocol):
    """Makes prompts of texts with images, as the served model's image processor does."""

    async def prompt(self, text: str, images: Sequence[Image]) -> MadePrompt:
        """Return a prompt.

        Args:
            text: the rendered chat, with the model's own mark for each image.
            images: the images in the order of their marks.

        Raises:
            RequestError: the text does not have a mark for each image, or an image has a size that the model cannot
                read.
        """

    async def close(self) -> None:
        """End the processes that make prompts."""


class Vision(msgspec.Struct, frozen=True):
    """The two halves of reading images.

    Attributes:
        reader: reads the images of requests.
        prompts: makes prompts of them.
    """

    reader: ImageReader
    prompts: ImagePrompts

    async def close(self) -> None:
        """End the processes of both halves."""
        await self.reader.close()
        await self.prompts.close()
