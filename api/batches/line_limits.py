"""Applies the limits of request bodies to batch lines, so that decoding them does not delay live requests."""

from __future__ import annotations

import asyncio

from llmfw.api.server.json_scan import JsonScan
from llmfw.api.server.limits import BodyLimits
from llmfw.core.base.errors import RequestError

from .input_lines import LongLine

PIECE = 2**16
"""Bytes to scan before yielding to the event loop."""


async def why_too_large(line: bytes | LongLine, limits: BodyLimits) -> str | None:
    """Return why a line exceeds the limits of a request body, or None if it does not.

    Also returns None for a `LongLine`, because validation rejects every `LongLine`.
    """
    if isinstance(line, LongLine):
        return None
    if len(line) > limits.body_bytes:
        return f"this line has {len(line)} bytes; at most {limits.body_bytes} are allowed (--max-body-mb)"
    scan = JsonScan(limits)
    try:
        for start in range(0, len(line), PIECE):
            if start:
                await asyncio.sleep(0)
            scan.feed(line[start : start + PIECE])
    except RequestError as error:
        return str(error)
    return None
