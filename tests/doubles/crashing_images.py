"""A media processor that does what the text of a prompt says: crash, hang, take memory, fail, or prepare it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from llmfw.core import Image, MediaArray, MediaProcessor, MediaPrompt, MediaSpan, RequestError


class CrashingImages(MediaProcessor):
    """Obeys the prompt."""

    placeholder = "<image>"

    def __init__(self, model: str) -> None:
        if model == "unbuilt":
            raise ValueError("no such model")

    def process(self, text: str, images: Sequence[Image]) -> MediaPrompt:
        if "crash" in text:
            os._exit(3)
        if "hang" in text:
            time.sleep(600)
        if "memory" in text:
            bytearray(1 << 40)
        if "fail" in text:
            raise KeyError("a secret of the image")
        if "refuse" in text:
            raise RequestError("the image is odd", param="messages[0]")
        print("something that a library prints")
        tensors = {"pixels": MediaArray("|u1", (len(images[0].pixels),), images[0].pixels)}
        span = MediaSpan(offset=0, length=9, key=images[0].digest, token_id=7, tensors=tensors)
        return MediaPrompt([7] * 9 + [len(text)], (span,))
