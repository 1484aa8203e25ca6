"""A media processor that does to its process what the text says."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from llmfw.core.base.errors import ModelError, RequestError
from llmfw.core.base.image import Image
from llmfw.core.base.media import MediaArray, MediaPrompt, MediaSpan
from llmfw.core.interfaces.media_processor import MediaProcessor


class ActingProcessor(MediaProcessor):
    """Makes a token of each character, and a span of one token for each image, unless the text is an act."""

    placeholder = "<image>"

    def __init__(self, model: str) -> None:
        if model == "broken":
            raise ModelError("the model has no pictures")

    def process(self, text: str, images: Sequence[Image]) -> MediaPrompt:
        if act := ACTS.get(text):
            act()
        if text.count(self.placeholder) != len(images):
            raise RequestError(f"{len(images)} images")
        ids: list[int] = []
        spans = []
        for piece, image in zip(text.split(self.placeholder), [*images, None], strict=True):
            ids += map(ord, piece)
            if image is not None:
                span = MediaSpan(
                    offset=len(ids),
                    length=1,
                    key=image.digest,
                    token_id=0,
                    tensors={"pixels": _pixels(image)},
                )
                spans.append(span)
                ids.append(0)
        return MediaPrompt(ids, tuple(spans))


def _pixels(image: Image) -> MediaArray:
    return MediaArray("|u1", (image.height, image.width, 3), image.pixels)


def _hang() -> None:
    time.sleep(600)


def _spin() -> None:
    while True:
        pass


def _eat() -> None:
    held = []
    while True:
        held.append(bytearray(2**20))


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _raise() -> None:
    raise KeyError("a defect")


ACTS = {"hang": _hang, "spin": _spin, "eat": _eat, "crash": _crash, "raise": _raise}
