"""The limits on images, and the exception for images that exceed a limit or cannot be read."""

from __future__ import annotations

from typing import Literal

import msgspec

from llmfw.core.base.errors import LLMFWError

Reason = Literal[
    "format",
    "animated",
    "damaged",
    "extra_data",
    "size",
    "bytes",
    "cost",
    "crash",
    "source",
    "address",
    "number",
    "model",
]
"""The reason why an image was refused, for metrics: unknown format, more than one frame, an incomplete or
invalid file, data beyond the picture, too small or too large, too many bytes, too much time or memory, a
crash of its decoder, a source that gives no image, an address that may not be used, too many images, an image
that the model's processor cannot prepare."""

CODE = "invalid_image"
"""Code of the errors of images that are refused."""

REASONS: tuple[Reason, ...] = Reason.__args__  # type: ignore[attr-defined]


class ImageLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one image, and of the processes that decode images.

    Attributes:
        file_bytes: maximum size of the file.
        pixels: maximum number of pixels.
        max_side, min_side: largest and smallest width and height, in pixels.
        frames: maximum number of frames of a GIF, of which the first is used.
        cpu_s: CPU time after which decoding is stopped, in seconds. The limit on wall time is four times as long.
        memory_mb: memory that decoding may take in addition to the decoder's own, in MiB.
        workers: number of images that are decoded at a time.
        max_waiting: maximum number of images that wait to be decoded.
    """

    file_bytes: int = 10 * 2**20
    pixels: int = 2**25
    max_side: int = 16_384
    min_side: int = 4
    frames: int = 1000
    cpu_s: float = 5.0
    memory_mb: int = 768
    workers: int = 2
    max_waiting: int = 512

    @property
    def longest_s(self) -> float:
        """Seconds after which decoding is stopped even if it has used little CPU time."""
        return 4 * self.cpu_s


class ImageRefusedError(LLMFWError):
    """An image that is not accepted.

    Args:
        message: the error, as the predicate of a sentence about the image, and what to do.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def too_many_bytes(size: int, limits: ImageLimits) -> ImageRefusedError:
    """Return the error for a file of more bytes than are allowed."""
    return ImageRefusedError(
        "bytes",
        f"has {size} bytes; at most {limits.file_bytes} are allowed: scale it down, or compress it more",
    )


def check_size(width: int, height: int, limits: ImageLimits) -> None:
    """Raise ImageRefusedError if an image of this size, in pixels, is outside the limits."""
    size = f"has {width}x{height} pixels"
    if min(width, height) < limits.min_side:
        raise ImageRefusedError("size", f"{size}; each side must have at least {limits.min_side}")
    if max(width, height) > limits.max_side:
        raise ImageRefusedError(
            "size", f"{size}; each side may have at most {limits.max_side}: scale it down"
        )
    if width * height > limits.pixels:
        raise ImageRefusedError("size", f"{size}; at most {limits.pixels} pixels are allowed: scale it down")
