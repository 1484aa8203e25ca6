"""A decoded picture, as decoders hand it to what prepares it for a model."""

from __future__ import annotations

import msgspec


class Image(msgspec.Struct, frozen=True):
    """A decoded picture: RGB, 8 bits a channel, rows from the top; EXIF orientation applied.

    Attributes:
        width, height: size in pixels.
        pixels: red, green and blue of each pixel: 3 * width * height bytes.
        digest: sha256 of width and height, each as 4 bytes, little-endian, and then of the pixels.
    """

    width: int
    height: int
    pixels: bytes
    digest: bytes
