"""Delivers replies that are sent before the client has sent its whole request body.

If the server closed the connection at once, the connection would be reset, and the client, still sending,
would never see the reply.
"""

from __future__ import annotations

import asyncio

from litestar.types import ASGIApp, Message, Receive, Scope, Send

MAX_DRAINED_BYTES = 2**30
MAX_QUIET_S = 10.0


class Lingering:
    """ASGI middleware that receives and drops the rest of a body whose request is answered early.

    The reply is sent at once, and the connection is closed after the body's end. It is closed earlier after
    MAX_DRAINED_BYTES, or if nothing arrives for MAX_QUIET_S.
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
