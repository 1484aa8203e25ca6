"""Descriptions of routes for the OpenAPI document.

Pass them to Litestar's decorators as `opt=describe(...)`, in routes of plugins, too. Imports no web
framework.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .scopes import DEFAULT_SCOPE

OPT = "llmfw.operation"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one route.

    Attributes:
        summary: one line of text.
        body: type of the request body, or None.
        body_media_type: media type of the request body.
        reply: type of the reply's body, or None.
        chunk: type of one event's data if the route can stream, else None.
        query: query parameters: name → type.
        status: status of a successful reply.
        media_type: media type of the reply.
        scope: scope that callers need, one of `SCOPES`; "": callers need neither a scope nor a key. Only GET
            routes whose path has no parameters may have "". The server's own routes under /admin have
            "admin".
        is_home: whether browsers that open `/` get this route's reply. At most one route may set it, and that
            route must have the scope "".
    """

    summary: str
    body: Any = None
    body_media_type: str = "application/json"
    reply: Any = None
    chunk: Any = None
    query: dict[str, Any] = {}
    status: int = 200
    media_type: str = "application/json"
    scope: str = DEFAULT_SCOPE
    is_home: bool = False


def describe(summary: str, **fields: Any) -> dict[str, Operation]:
    """Return the `opt` of a route handler that describes the route.

    The keywords are the fields of `Operation`.
    """
    return {OPT: Operation(summary=summary, **fields)}
