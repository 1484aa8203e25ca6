"""Reads the structure of GIF files: https://www.w3.org/Graphics/GIF/spec-gif89a.txt."""

from __future__ import annotations

import struct

from .outline import Outline, incomplete

_SCREEN = struct.Struct("<HHB")
_FRAME = struct.Struct("<HHHHB")
_START = 6
_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B


def outline_of(data: bytes) -> Outline:
    """Return the outline of a GIF; raise ImageRefusedError if it is incomplete or damaged.

    The size is the size of the screen, or larger if the first frame does not fit into the screen.
    """
    try:
        return _read(data)
    except (IndexError, struct.error):
        raise incomplete("GIF", "its end is missing") from None


def _read(data: bytes) -> Outline:
    width, height, flags = _SCREEN.unpack_from(data, _START)
    place = _START + 7 + _table_bytes(flags)
    num_frames = 0
    while True:
        kind = data[place]
        place += 1
        if kind == _TRAILER:
            break
        if kind == _EXTENSION:
            place = _after_blocks(data, place + 1)
        elif kind == _IMAGE:
            left, top, frame_width, frame_height, flags = _FRAME.unpack_from(data, place)
            if not num_frames:
                width, height = max(width, left + frame_width), max(height, top + frame_height)
            num_frames += 1
            place = _after_blocks(data, place + _FRAME.size + _table_bytes(flags) + 1)
        else:
            raise incomplete("GIF", f"it has an unknown block at byte {place - 1}")
    if not num_frames:
        raise incomplete("GIF", "it has no pixels")
    return Outline(width, height, num_frames, place)


def _table_bytes(flags: int) -> int:
    """Return the size of the color table that a block's flags announce."""
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _after_blocks(data: bytes, place: int) -> int:
    """Return the place after a chain of sub-blocks, which ends with an empty sub-block."""
    while size := data[place]:
        place += size + 1
    return place + 1
