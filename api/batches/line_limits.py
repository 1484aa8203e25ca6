"""Limits of a batch line: the same as for the body of a request, so that decoding it does not delay other requests."""

from __future__ import annotations

import asyncio

from llmfw.api.server.json_scan import JsonScan
from llmfw.api.server.limits import BodyLimits
from llmfw.core.base.errors import RequestError

from .input_lines import LongLine

PIECE = 2**16
"""Bytes that are scanned before other work gets a turn."""


async def why_too_large(line: bytes | LongLine, limits: BodyLimits) -> str | None:
    """Return why a line exceeds the limits of a request's body; None: it does not, or it is already refused as too long."""
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
