"""A double of the model's image processor, at its seam: each image becomes a text that tells its size and colors.

With the echo engine, which answers with its prompt, a reply shows which images arrived, and in which order.
"""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.base.errors import RequestError
from llmfw.core.base.image import Image, image_of
from llmfw.core.base.media import MediaPrompt
from llmfw.core.interfaces.tokenizer import Tokenizer

MARK = "<image>"
TEMPLATE = (
    "{% for message in messages %}{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{% if part.type == 'image' %}"
    "{{ '<image>' }}{% if part.detail %}{{ '(' ~ part.detail ~ ')' }}{% endif %}"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
)
"""A chat template with a mark for each image, and its detail."""


class SeeingPrompts:
    """Has the interface of `llmfw.api.media.vision.ImagePrompts`.

    Attributes:
        seen: the images of all prompts.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.seen: list[Image] = []

    async def start(self) -> None:
        """There is nothing to start."""

    async def close(self) -> None:
        """There is nothing to end."""

    async def prompt(self, text: str, images: Sequence[Image], tenant: str = "") -> MediaPrompt:
        pieces = text.split(MARK)
        if len(pieces) != len(images) + 1:
            raise RequestError(
                f"the prompt has {len(pieces) - 1} marks for {len(images)} images", param="messages"
            )
        self.seen += images
        for image in images:
            assert image == image_of(image.width, image.height, image.pixels)
        shown = [
            f"[{image.width}x{image.height}]{piece}" for image, piece in zip(images, pieces[1:], strict=True)
        ]
        tokens = self._tokenizer.encode(pieces[0] + "".join(shown), add_special_tokens=False)
        return MediaPrompt(tokens, ())
