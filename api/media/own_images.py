"""Reads the images of `LLM.chat`, which are the caller's own: from Pillow, paths, bytes and data: URLs.

They are decoded in the caller's process, without the limits for images of clients.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfw.core.base.errors import ConfigError, RequestError
from llmfw.core.base.image import Image, image_of
from llmfw.core.interfaces.chat_template import Message
from llmfw.core.media.limits import ImageLimits, ImageRefusedError
from llmfw.core.media.worker import HINT

if TYPE_CHECKING:
    from types import ModuleType

_LIMITS = ImageLimits(file_bytes=2**31, pixels=2**28, max_side=2**16, min_side=1, frames=2**31)
_KINDS = ("image", "image_url")


def take_images(messages: Sequence[Message]) -> tuple[Sequence[Message], list[Image]]:
    """Return messages with `{"type": "image"}` in place of each image, and the images in this order.

    Raises:
        RequestError: an image cannot be read; names the part.
        ConfigError: Pillow is not installed.
    """
    images: list[Image] = []
    if not any(isinstance(message.get("content"), list) for message in messages):
        return messages, images
    found: list[Message] = []
    for i, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, list):
            parts = [_taken(part, f"messages[{i}].content[{j}]", images) for j, part in enumerate(content)]
            message = {**message, "content": parts}
        found.append(message)
    return found, images


def _taken(part: Any, param: str, images: list[Image]) -> Any:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind not in _KINDS:
        return part
    given = part.get(kind)
    if kind == "image_url" and isinstance(given, Mapping):
        given = given.get("url")
    try:
        images.append(_image(given, _picture()))
    except ImageRefusedError as error:
        raise RequestError(f"{param}: the image {error}", param=param) from error
    except OSError as error:
        raise RequestError(f"{param}: the image cannot be read: {error.strerror}", param=param) from error
    return {"type": "image"}


def _picture() -> ModuleType:
    try:
        from llmfw.core.media import picture
    except ImportError as error:
        raise ConfigError(HINT) from error
    return picture


def _image(given: Any, picture: ModuleType) -> Image:
    if isinstance(given, picture.Pillow.Image):
        upright = picture.to_rgb(given)
        width, height = upright.size
        return image_of(width, height, upright.tobytes())
    if isinstance(given, bytes):
        data = given
    elif isinstance(given, str) and given.startswith("data:"):
        try:
            data = base64.b64decode(given.partition(",")[2], validate=True)
        except binascii.Error:
            raise ImageRefusedError("source", "is not valid base64") from None
    elif isinstance(given, str | PathLike):
        data = Path(fspath(given)).expanduser().read_bytes()
    else:
        raise ImageRefusedError(
            "source",
            f"is {type(given).__name__}; it must be an image of Pillow, a path, bytes or a data: URL",
        )
    width, height, pixels = picture.decode(data, _LIMITS)
    return image_of(width, height, pixels)
