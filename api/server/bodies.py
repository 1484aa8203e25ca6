"""Reads JSON bodies within limits on their size, their complexity, and the memory of all bodies together.

Decoding holds the GIL, whichever thread decodes. Large bodies are therefore decoded one at a time, and after
each one other work gets as much time as its decoding took.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from litestar import Request
from litestar.exceptions import HTTPException

from llmfw.core.base.errors import OverloadedError

from .body_budget import Body, BodyBudget
from .json_scan import JsonScan
from .limits import BodyLimits
from .memory import Memory
from .pace import Pace

SMALL_BYTES = 2**16
"""Largest body that does not count toward the memory for bodies."""

FREE_COST_S = 0.0005
"""Bodies whose decoding takes at most this long, in seconds, do not wait for a turn (see `pace`).

Decoding a few hundred messages or 128 KiB of text takes about this long.
"""

CLIENT_CLOSED_REQUEST = 499  # nginx's status for this; no client receives it
_UTF_8 = ("", "utf-8", "utf8", "us-ascii", "ascii")

# Measured upper bounds of decoding times on a slow core, in seconds.
_S_A_BYTE, _S_A_VALUE, _S_A_NODE = 4e-9, 5e-8, 2e-6
_S_A_RECEIVED_BYTE = 2e-9
_MAX_SCAN_S = 0.005  # longest scan of one piece; if more time passed, other threads used it


class BodyReader:
    """Reads the JSON bodies of an application's requests.

    Args:
        limits: limits of each body, and of all bodies together.
    """

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._pace = Pace()
        self._memory = Memory()
        self._budget = BodyBudget(limits.buffered_bytes)

    async def read(self, request: Request[Any, Any, Any], owner: str) -> bytes:
        """Receive a request's body.

        Args:
            owner: tenant or address of the client. If memory is short, bodies of the owner with the most
                bytes are evicted.

        Raises:
            HTTPException: 413 if the body is larger than the route allows.
            RequestError: the body has more values or deeper nesting than the limits allow.
            OverloadedError: the memory for bodies is used up, or too many large bodies wait to be decoded.
        """
        try:
            async with asyncio.timeout(None) as deadline:
                body = self._budget.begin(owner, lambda: deadline.reschedule(0))
                try:
                    return await self._read(request, body)
                finally:
                    self._budget.end(body)
                    if body.size > SMALL_BYTES:
                        self._memory.used()
        except TimeoutError:
            raise OverloadedError(
                "other requests needed the memory that this one's unfinished body took up; send it again later"
            ) from None

    async def _read(self, request: Request[Any, Any, Any], body: Body) -> bytes:
        scan = JsonScan(self._limits)
        chunks: list[bytes] = []
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > SMALL_BYTES and not self._budget.grow(body, size):
                raise OverloadedError(
                    "the bodies of other requests take up the memory for bodies; send it again later"
                )
            await self._scan(scan, chunk, size)
            chunks.append(chunk)
        body.is_whole = True
        cost_s = size * _S_A_BYTE + scan.num_values * _S_A_VALUE + scan.num_nodes * _S_A_NODE
        if cost_s > FREE_COST_S:
            await self._pace.turn(cost_s)
            await _check_connected(request)
        return b"".join(chunks)

    async def _scan(self, scan: JsonScan, chunk: bytes, size: int) -> None:
        """Scan a chunk of a body.

        Args:
            size: bytes of the body received so far, including this chunk.
        """
        if size <= SMALL_BYTES:
            scan.feed(chunk)
            return
        for start in range(0, len(chunk), SMALL_BYTES):
            piece = chunk[start : start + SMALL_BYTES]
            started = time.perf_counter()
            scan.feed(piece)
            spent = time.perf_counter() - started
            await self._pace.turn(min(spent, _MAX_SCAN_S) + len(piece) * _S_A_RECEIVED_BYTE)


async def _check_connected(request: Request[Any, Any, Any]) -> None:
    """Raise HTTPException if the client disconnected while its body waited; decoding would be wasted then."""
    going = asyncio.ensure_future(request.receive())  # after the body, only the disconnect follows
    await asyncio.sleep(0)
    if going.done():
        raise HTTPException("the client closed the request", status_code=CLIENT_CLOSED_REQUEST)
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)


def check_encoding(request: Request[Any, Any, Any]) -> None:
    """Raise HTTPException 415 if a body has a content-encoding, or a charset other than UTF-8."""
    for name, value in request.scope["headers"]:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            shown = value.decode("latin-1")[:100]
            raise HTTPException(
                f"content-encoding is {shown!r}; this server reads bodies that are not encoded: send it without",
                status_code=415,
                headers={"accept-encoding": "identity"},
            )
    charset = request.content_type[1].get("charset", "").strip("\"' ").lower()
    if charset not in _UTF_8:
        raise HTTPException(f"charset is {charset[:100]!r}; send JSON in UTF-8", status_code=415)
