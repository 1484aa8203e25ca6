"""Middleware that gives every request an id.

This is plain ASGI around the whole application, so that it covers unknown paths and plugins' routes as well.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable

from litestar.types import ASGIApp, Message, Receive, Scope, Send

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,200}")


class RequestId:
    """Adds `x-request-id` to every reply: the client's id if it is well formed, else a new one.

    The id is also sent as `request-id`, where Anthropic's SDKs look for it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":  # type: ignore[comparison-overlap]
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = given if _SANE_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}".encode()

        # A plain function, not a coroutine, because each event of a stream passes through it.
        def send_with_id(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id),
                    (b"request-id", request_id),
                ]
            return send(message)

        await self._app(scope, receive, send_with_id)
