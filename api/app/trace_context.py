"""Passes the W3C trace context of HTTP requests on to observers."""

from __future__ import annotations

import re
from collections.abc import Awaitable

from litestar.types import ASGIApp, Receive, Scope, Send

from llmfw.core.client.trace_context import traceparent

_WELL_FORMED = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""https://www.w3.org/TR/trace-context/#traceparent-header"""


class TraceContext:
    """ASGI middleware that sets `traceparent` while a request with a well-formed header of that name is handled.

    Tasks that the request starts keep it.

    Args:
        app: the application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one connection, or the start and the end of the server."""
        if b"traceparent" not in dict(scope.get("headers", ())):
            return self._app(scope, receive, send)
        return self._traced(scope, receive, send)

    async def _traced(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = [value for name, value in scope.get("headers", ()) if name == b"traceparent"]
        if len(given) != 1 or not _WELL_FORMED.fullmatch(given[0]):
            await self._app(scope, receive, send)
            return
        token = traceparent.set(given[0].decode())
        try:
            await self._app(scope, receive, send)
        finally:
            traceparent.reset(token)
