"""Replies with a file's bytes, sent in pieces, no faster than the client reads them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping

from litestar.types import Receive, Scope, Send


class Download:
    """An ASGI response that sends pieces of bytes until their end, or until the client disconnects.

    Args:
        pieces: iterator of the bytes, closed at the end; None: send only the headers.
        first: bytes to send before `pieces`.
        headers: headers of the reply, including content-length.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None] | None,
        first: bytes,
        status: int,
        headers: Mapping[str, str],
    ) -> None:
        self._pieces = pieces
        self._first = first
        self._status = status
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response.

        If `pieces` raises, the connection breaks, so that the client notices missing bytes.
        """
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in self._headers.items()]
        await send({"type": "http.response.start", "status": self._status, "headers": encoded})
        if self._pieces is None:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        sending = asyncio.create_task(self._send_all(self._pieces, send))
        going = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({sending, going}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, going):
                task.cancel()
            await asyncio.gather(sending, going, return_exceptions=True)
        if not sending.cancelled():
            sending.result()

    async def _send_all(self, pieces: AsyncGenerator[bytes, None], send: Send) -> None:
        async with contextlib.aclosing(pieces):
            await send({"type": "http.response.body", "body": self._first, "more_body": True})
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
