"""Reads the structure of WebP files: https://developers.google.com/speed/webp/docs/riff_container."""

from __future__ import annotations

import struct

from .outline import Outline, incomplete

_CHUNK = struct.Struct("<4sI")
_START = 12
_ANIMATED = 0x02


def outline_of(data: bytes) -> Outline:
    """Return the outline of a WebP; raise ImageRefusedError if it is incomplete or damaged."""
    end = 8 + int.from_bytes(data[4:8], "little")
    end += end & 1
    if end > len(data):
        raise incomplete("WebP", "its end is missing")
    size = canvas = None
    num_frames, place = 1, _START
    while place + _CHUNK.size <= end:
        kind, length = _CHUNK.unpack_from(data, place)
        content = data[place + _CHUNK.size : place + _CHUNK.size + 10]
        place += _CHUNK.size + length + (length & 1)
        if place > end:
            raise incomplete("WebP", "its end is missing")
        if kind == b"VP8X" and len(content) == 10:
            canvas = int.from_bytes(content[4:7], "little") + 1, int.from_bytes(content[7:10], "little") + 1
            num_frames = 2 if content[0] & _ANIMATED else 1
        elif kind == b"VP8 " and content[3:6] == b"\x9d\x01\x2a":
            width, height = struct.unpack_from("<HH", content, 6)
            size = width & 0x3FFF, height & 0x3FFF
        elif kind == b"VP8L" and content[:1] == b"\x2f":
            bits = int.from_bytes(content[1:5], "little")
            size = (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
    if num_frames > 1 and canvas:
        return Outline(*canvas, num_frames, end)
    if size is None or (canvas is not None and canvas != size):
        raise incomplete("WebP", "it has no pixels, or pixels of another size")
    return Outline(*size, num_frames, end)
