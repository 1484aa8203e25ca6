"""Applies the limits of request bodies to batch lines, so that decoding them does not delay live requests."""

from __future__ import annotations

import asyncio

import msgspec

from llmfw.api.server.json_scan import CODE, JsonScan
from llmfw.api.server.limits import BodyLimits
from llmfw.core.base.errors import RequestError

from .input_lines import LongLine

PIECE = 2**16
"""Bytes to scan before yielding to the event loop."""


class TooLarge(msgspec.Struct, frozen=True):
    """A limit that a line exceeds.

    Attributes:
        code: error code of the line: "line_too_long", or the code of a live request whose JSON is too
            complex.
        reason: the limit, as text.
    """

    code: str
    reason: str


async def why_too_large(line: bytes | LongLine, limits: BodyLimits) -> TooLarge | None:
    """Return which limit of a request body a line exceeds, or None if it exceeds none.

    Also returns None for a `LongLine`, because validation rejects every `LongLine`.
    """
    if isinstance(line, LongLine):
        return None
    if len(line) > limits.body_bytes:
        return TooLarge(
            "line_too_long",
            f"this line has {len(line)} bytes; at most {limits.body_bytes} are allowed (--max-body-mb)",
        )
    scan = JsonScan(limits)
    try:
        for start in range(0, len(line), PIECE):
            if start:
                await asyncio.sleep(0)
            scan.feed(line[start : start + PIECE])
    except RequestError as error:
        return TooLarge(error.code or CODE, str(error).replace("the request's body", "this line"))
    return None
