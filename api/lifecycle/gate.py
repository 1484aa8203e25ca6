"""Refuses new requests while the server drains, and counts those that run."""

from __future__ import annotations

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from llmfw.api.access.error_reply import send_error
from llmfw.api.admin.access import first_part
from llmfw.core.client.whole_request import whole_request

from .drain import Drain

OPERATOR_PATHS = frozenset({"admin", "flush_cache", "health", "health_generate", "metrics", "ping"})
"""First segments of the paths by which an operator or a probe observes the server: neither refused nor counted."""

_READING = ("GET", "HEAD", "OPTIONS")


class Gate:
    """ASGI middleware that refuses requests while the server drains, and counts the open ones.

    All that an HTTP request sends to the engine counts as one whole request. A sleep of the engine waits for
    its end. Requests that only read (GET, HEAD and OPTIONS) are answered until the server ends. A refusal
    closes the connection, so that the client's next connection may reach another server.
    """

    def __init__(self, app: ASGIApp, drain: Drain) -> None:
        self._app = app
        self._drain = drain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        kind: str = scope["type"]
        if kind != "http" or first_part(scope["path"]) in OPERATOR_PATHS:
            await self._app(scope, receive, send)
            return
        refusal = self._drain.refusal
        if refusal is not None and scope["method"] not in _READING:  # type: ignore[typeddict-item]
            await send_error(_closing(send), scope["path"], refusal)
            return
        with self._drain.request(), whole_request():
            await self._app(scope, receive, send)


def _closing(send: Send) -> Send:
    """Return a `send` that ends the connection after the reply."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"connection", b"close")]
        await send(message)

    return sent
