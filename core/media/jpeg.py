"""Reads the structure of JPEG files: ITU-T T.81, annex B."""

from __future__ import annotations

import re

from .outline import Outline, incomplete

_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers that start a frame, and state its size."""
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
"""Markers without a segment."""
_SCAN, _END, _START = 0xDA, 0xD9, 0xD8
_NEXT_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")
"""A marker after compressed pixels. Within compressed pixels, a zero follows each 0xff."""


def outline_of(data: bytes) -> Outline:
    """Return the outline of a JPEG; raise ImageRefusedError if it is incomplete or damaged."""
    place, size, has_pixels = 2, None, False
    while place + 2 <= len(data):
        if data[place] != 0xFF:
            raise incomplete("JPEG", "a marker is missing")
        marker = data[place + 1]
        if marker == 0xFF:  # padding
            place += 1
            continue
        place += 2
        if marker == _END:
            if size is None or not has_pixels:
                raise incomplete("JPEG", "it has no pixels")
            return Outline(*size, 1, place)
        if marker in _ALONE:
            continue
        length = int.from_bytes(data[place : place + 2], "big")
        if marker in (0x00, _START) or length < 2 or place + length > len(data):
            break
        if marker in _FRAMES:
            if size is not None or length < 8:
                raise incomplete("JPEG", "it has several frames, or an invalid one")
            size = (
                int.from_bytes(data[place + 5 : place + 7], "big"),
                int.from_bytes(data[place + 3 : place + 5], "big"),
            )
        place += length
        if marker == _SCAN:
            has_pixels = True
            found = _NEXT_MARKER.search(data, place)
            if found is None:
                break
            place = found.end() - 2
    raise incomplete("JPEG", "its end is missing")
