"""Reads the structure of PNG files: https://www.w3.org/TR/png-3/."""

from __future__ import annotations

import struct

from .outline import Outline, incomplete

_CHUNK = struct.Struct(">I4s")
_SIZE = struct.Struct(">II")
_START, _CHECKSUM = 8, 4


def outline_of(data: bytes) -> Outline:
    """Return the outline of a PNG; raise ImageRefusedError if it is incomplete or damaged."""
    size: tuple[int, int] | None = None
    num_frames, place, has_pixels = 1, _START, False
    while place + _CHUNK.size <= len(data):
        length, kind = _CHUNK.unpack_from(data, place)
        content = place + _CHUNK.size
        place = content + length + _CHECKSUM
        if place > len(data):
            break
        if size is None:
            if kind != b"IHDR" or length != 13:
                raise incomplete("PNG", "it does not start with its header")
            width, height = _SIZE.unpack_from(data, content)
            size = width, height
        elif kind == b"acTL" and length >= _CHECKSUM:
            num_frames = int.from_bytes(data[content : content + 4], "big")
        elif kind == b"IDAT":
            has_pixels = True
        elif kind == b"IEND":
            if not has_pixels:
                raise incomplete("PNG", "it has no pixels")
            return Outline(*size, num_frames, place)
    raise incomplete("PNG", "its end is missing")
