"""Answers HEAD requests with the status and headers of the path's GET route, without a body."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any, cast

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from llmfw.api.http.sse import STRAIGHT

_NOT_ALLOWED = 405


class HeadFollowsGet:
    """ASGI middleware that answers HEAD requests by the path's GET route.

    The GET route runs until its reply starts. Routes that support HEAD are not affected: the GET route is
    used only if the application replies to HEAD with status 405 and allows GET.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one connection."""
        if scope.get("method") != "HEAD":
            return self._app(scope, receive, send)
        return self._head(scope, receive, send)

    async def _head(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the application's own reply, or by GET's."""
        refused = False

        async def send_unless_refused(message: Message) -> None:
            nonlocal refused
            refused = refused or (message["type"] == "http.response.start" and _may_get(message))
            if not refused:
                await send(message)

        own = cast("Scope", {**scope, STRAIGHT: lambda: send_unless_refused})
        await self._app(own, receive, send_unless_refused)
        if refused:
            await self._get(scope, receive, send)

    async def _get(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the start of GET's reply, then an empty body; cancel the route, which may stream for ever."""
        started: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        async def note_start(message: Message) -> None:
            if message["type"] == "http.response.start" and not started.done():
                started.set_result(message)

        # A copy: in the server's own scope, the method must stay HEAD, so that the server sends no body.
        as_get = cast("Scope", {**scope, "method": "GET", STRAIGHT: lambda: note_start})
        running = asyncio.ensure_future(self._app(as_get, receive, note_start))
        either: set[asyncio.Future[Any]] = {running, started}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not started.done():
                await running  # raises the application's exception
                return
            await send(started.result())
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(running, return_exceptions=True)


def _may_get(message: Message) -> bool:
    """Return whether a reply has status 405 and allows GET."""
    if message["status"] != _NOT_ALLOWED:  # type: ignore[typeddict-item]
        return False
    allowed = dict(message["headers"]).get(b"allow", b"").decode()  # type: ignore[typeddict-item]
    return "GET" in allowed.split(", ")
