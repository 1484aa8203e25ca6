"""Reports query parameters that a route does not know, in the same way as unknown fields of a body."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from urllib.parse import parse_qsl

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from llmfw.core.interfaces.operation import OPT, Operation

from .body import IGNORED_HEADER, report_ignored

MAX_PARAMETERS = 1000


class QueryNames:
    """ASGI middleware that names unknown query parameters in the reply's header, or refuses them.

    Routes declare their parameters by `describe`. The parameters of a route without `describe` are not
    checked.

    Args:
        strict: whether to refuse requests with unknown parameters.
    """

    def __init__(self, app: ASGIApp, strict: bool) -> None:
        self._app = app
        self._strict = strict

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one connection."""
        ignored = _unknown(scope) if scope.get("query_string") else []
        if not ignored:
            return self._app(scope, receive, send)
        reported = report_ignored(ignored, self._strict)[IGNORED_HEADER].encode("latin-1")

        def reporting(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                name = IGNORED_HEADER.encode()
                others = [value for key, value in message["headers"] if key == name]
                kept = [(key, value) for key, value in message["headers"] if key != name]
                message["headers"] = [*kept, (name, b", ".join([*others, reported]))]
            return send(message)

        return self._app(scope, receive, reporting)


def _unknown(scope: Any) -> list[str]:
    operation: Operation | None = scope["route_handler"].opt.get(OPT)
    if operation is None:
        return []
    given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)[:MAX_PARAMETERS]
    return sorted({name for name, _ in given} - operation.query.keys())
