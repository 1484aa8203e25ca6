"""The interface of a media processor, which turns a prompt's text and images into a model's input.

    text     "… <image> …"                           the chat template has written one placeholder for each image
    images   [RGB, 8 bits]
        ──►  token ids [ … <image> <image> <image> … ]      and for each image a span and the encoder's tensors

A media processor runs in a separate process, because a client's image may crash it. It also runs once in the
engine process, at the start. Importing this module imports neither torch nor transformers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from llmfw.core.base.image import Image
from llmfw.core.base.media import MediaPrompt


class MediaProcessor(ABC):
    """Prepares images for one model.

    Args:
        model: the model's folder.

    Attributes:
        placeholder: text that stands for one image in a prompt's text.
    """

    placeholder: str

    @abstractmethod
    def __init__(self, model: str) -> None:
        """Read the model's files.

        Raises:
            ModelError: the model has no image processor, or llmfw cannot use it.
        """

    @abstractmethod
    def process(self, text: str, images: Sequence[Image]) -> MediaPrompt:
        """Return the tokens of a prompt.

        Args:
            text: text with a placeholder for each image, in order.
            images: the images, at least one.

        Raises:
            RequestError: the numbers of placeholders and of images differ, or an image cannot be processed.
        """
