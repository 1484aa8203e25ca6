"""Answers browsers that open `/` by the route of a plugin. Other clients get the server's own reply."""

from __future__ import annotations

from typing import cast

from litestar.datastructures.headers import Accept
from litestar.types import ASGIApp, Message, Receive, Scope, Send

HTML, JSON = "text/html", "application/json"


class Home:
    """ASGI middleware that passes `GET /` on to another path if the client prefers HTML to JSON.

    Args:
        app: the application with both routes.
        path: path of the route that replies with HTML.
    """

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or scope["path"] != "/":  # type: ignore[comparison-overlap]
            await self._app(scope, receive, send)
            return

        async def send_varied(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"vary", b"accept")]
            await send(message)

        if scope.get("method") == "GET" and _prefers_html(scope):
            scope = cast("Scope", {**scope, "path": self._path, "raw_path": self._path.encode()})
        await self._app(scope, receive, send_varied)


def _prefers_html(scope: Scope) -> bool:
    """Return whether a client asks for HTML by name, and not for JSON before it."""
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"]
    try:
        return bool(values) and Accept(",".join(values)).best_match([JSON, HTML]) == HTML
    except (OverflowError, ValueError):  # a quality that is not a number
        return False
