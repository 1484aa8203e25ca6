"""What a route says of itself for the server's OpenAPI page: given to Litestar's decorators as `opt=describe(...)`."""

from __future__ import annotations

from typing import Any

import msgspec

OPT = "llmfw.operation"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One route, in words and types.

    Attributes:
        summary: one line.
        body: the Struct of the request's body, or None.
        body_media_type: of the request's body.
        reply: the Struct of the reply's JSON body, or None.
        chunk: the Struct of one event's data, where the route can stream.
        query: parameters in the query: name → type.
        status: of a reply without an error.
        media_type: of the reply, where it is not JSON.
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
    """Return the `opt` of a handler that tells of its operation. The fields are those of `Operation`."""
    return {OPT: Operation(summary=summary, **fields)}
