"""A decoded picture, as it goes from decoding to the model's image processor."""

from __future__ import annotations

import hashlib

import msgspec


class Image(msgspec.Struct, frozen=True):
    """A decoded picture: RGB, 8 bits a channel, rows from the top; EXIF orientation applied.

    Attributes:
        width, height: size in pixels.
        pixels: 3 * width * height bytes, a pixel's red, green and blue next to each other.
        digest: sha256 of the width and the height, each as 4 bytes in little-endian order, then the pixels.
    """

    width: int
    height: int
    pixels: bytes
    digest: bytes


def image_of(width: int, height: int, pixels: bytes) -> Image:
    """Return an image with its digest."""
    digest = hashlib.sha256(width.to_bytes(4, "little") + height.to_bytes(4, "little"))
    digest.update(pixels)
    return Image(width, height, pixels, digest.digest())
