"""Describes routes for the server's OpenAPI document: `opt=describe(...)` in Litestar's decorators."""

from __future__ import annotations

from typing import Any

import msgspec

OPT = "llmfw.operation"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """Description of one route.

    Attributes:
        summary: summary in one line.
        body: Struct of the request's body, or None.
        body_media_type: media type of the request's body.
        reply: Struct of the reply's JSON body, or None.
        chunk: Struct of one event's data, if the route can stream.
        query: query parameters: name → type.
        status: status of a successful reply.
        media_type: media type of the reply, if it is not JSON.
    """

    summary: str
    body: Any = None
    body_media_type: str = "application/json"
    reply: Any = None
    chunk: Any = None
    query: dict[str, Any] = {}
    status: int = 200
    media_type: str = "application/json"


def describe(summary: str, **fields: Any) -> dict[str, Operation]:
    """Return the `opt` of a handler that describes its operation. The arguments are the fields of `Operation`."""
    return {OPT: Operation(summary=summary, **fields)}
