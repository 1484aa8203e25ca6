"""The outline of an image file: its size and extent, without its pixels."""

from __future__ import annotations

import msgspec

from .limits import ImageRefusedError


class Outline(msgspec.Struct, frozen=True):
    """The facts that the structure of an image file gives.

    Attributes:
        width, height: size in pixels, before its orientation is applied.
        num_frames: number of frames.
        end: number of bytes until the end of the picture.
    """

    width: int
    height: int
    num_frames: int
    end: int


def incomplete(name: str, why: str) -> ImageRefusedError:
    """Return the error for a file that ends too early or contradicts its format."""
    return ImageRefusedError("damaged", f"is an incomplete or damaged {name}: {why}")
