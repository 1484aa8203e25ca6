"""Decodes data: URLs with base64, a piece at a time, so that long ones do not hold the event loop."""

from __future__ import annotations

import asyncio
import binascii

from llmfw.core.media.limits import ImageLimits, ImageRefusedError, too_many_bytes

MAX_HEADER = 200
"""Largest number of characters before the data. The type that a URL states there is not believed, and not read."""

_PIECE = 2**18  # characters, a multiple of 4


async def bytes_of_data_url(url: str, limits: ImageLimits) -> bytes:
    """Return the data of a URL that starts with "data:".

    Raises:
        ImageRefusedError: it has no data in base64, or too much.
    """
    comma = url.find(",", 0, MAX_HEADER)
    if comma < 0 or not url[:comma].lower().endswith(";base64"):
        raise ImageRefusedError(
            "source", "is at a data: URL without base64; it must start like data:image/png;base64,"
        )
    return await bytes_of_base64(url, limits, comma + 1)


async def bytes_of_base64(text: str, limits: ImageLimits, start: int = 0) -> bytes:
    """Decode base64; spaces and line breaks are skipped.

    Args:
        start: number of characters to skip.

    Raises:
        ImageRefusedError: the text is not base64, or decodes to too many bytes.
    """
    size = (len(text) - start) * 3 // 4
    if size > limits.file_bytes + _PIECE:
        raise too_many_bytes(size, limits)
    found = bytearray()
    place, rest = start, ""
    while place < len(text):
        piece = rest + "".join(text[place : place + _PIECE].split())
        place += _PIECE
        whole = len(piece) if place >= len(text) else len(piece) // 4 * 4
        rest = piece[whole:]
        try:
            found += binascii.a2b_base64(piece[:whole], strict_mode=True)
        except ValueError:
            raise ImageRefusedError("source", "is not valid base64") from None
        if place < len(text):
            await asyncio.sleep(0)
    return bytes(found)
