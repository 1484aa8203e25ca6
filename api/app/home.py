"""Answers browsers that open `/` by the route of a plugin. Other clients get the server's own reply."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import cast

from litestar.datastructures.headers import Accept
from litestar.types import ASGIApp, Message, Receive, Scope, Send

HTML, JSON = "text/html", "application/json"
_REFUSED = re.compile(r";\s*q\s*=\s*0(\.0*)?\s*(;|$)", re.IGNORECASE)
"""Pattern of a media range with the quality 0, which the client does not want. Litestar takes it for the last choice."""


class Home:
    """ASGI middleware that passes `GET /` on to another path if the client prefers HTML to JSON.

    Args:
        app: the application with both routes.
        path: path of the route that replies with HTML.
    """

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one connection."""
        if scope["type"] != "http" or scope["path"] != "/":  # type: ignore[comparison-overlap]
            return self._app(scope, receive, send)

        def send_varied(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"vary", b"accept")]
            return send(message)

        if scope.get("method") == "GET" and _prefers_html(scope):
            scope = cast("Scope", {**scope, "path": self._path, "raw_path": self._path.encode()})
        return self._app(scope, receive, send_varied)


def _prefers_html(scope: Scope) -> bool:
    """Return whether a client asks for HTML by name, and not for JSON before it."""
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"]
    ranges = [each for each in ",".join(values).split(",") if not _REFUSED.search(each)]
    try:
        return bool(ranges) and Accept(",".join(ranges)).best_match([JSON, HTML]) == HTML
    except (OverflowError, ValueError):  # a quality that is no number
        return False
