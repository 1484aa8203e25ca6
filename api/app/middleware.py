"""What holds for every request, whatever its route: a request id.

Plain ASGI around the whole application, so that nothing, no unknown path and no plugin's route, is left out.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable

from litestar.types import ASGIApp, Message, Receive, Scope, Send

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,200}")


class RequestId:
    """Puts `x-request-id` on every reply: the client's own if it is sane, else a new one.

    Anthropic's clients look for it under `request-id`.
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

        # Not a coroutine of its own: it stands in the way of each event of a stream.
        def send_with_id(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id),
                    (b"request-id", request_id),
                ]
            return send(message)

        await self._app(scope, receive, send_with_id)
