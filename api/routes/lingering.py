"""Lets clients see a reply that comes before they have sent all of their request's body.

A server that closes such a connection at once resets it, and the client, which is busy sending, sees no reply at all.
"""

from __future__ import annotations

import asyncio

from litestar.types import ASGIApp, Message, Receive, Scope, Send

MAX_DRAINED_BYTES = 2**30
MAX_QUIET_S = 10.0


class Lingering:
    """ASGI middleware: the rest of the body of a request that is answered early is received, and forgotten.

    The reply is sent at once, and the connection closed after it. Past MAX_DRAINED_BYTES, or when nothing comes for
    MAX_QUIET_S, the client is no longer waited for.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        whole = False

        async def receive_next() -> Message:
            nonlocal whole
            message = await receive()
            whole = whole or message["type"] != "http.request" or not message.get("more_body", False)
            return message  # type: ignore[return-value]

        async def send_next(message: Message) -> None:
            if whole:
                await send(message)
            elif message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
                await send(message)
            elif message["type"] == "http.response.body" and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await drain()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                await send(message)

        async def drain() -> None:
            drained = 0
            while not whole and drained < MAX_DRAINED_BYTES:
                try:
                    async with asyncio.timeout(MAX_QUIET_S):
                        message = await receive_next()
                except TimeoutError:
                    return
                drained += len(message.get("body", b""))  # type: ignore[arg-type]

        await self._app(scope, receive_next, send_next)  # type: ignore[arg-type]
