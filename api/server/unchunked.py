"""Replies in HTTP/1.0, which knows no chunks: what has no content-length ends with the connection."""

from __future__ import annotations

from litestar.types import Message, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def unchunked(cycle: RequestResponseCycle, send: Send) -> Send:
    """Return what sends a reply of a cycle without chunks. The cycle's connection must end with it."""
    has_length = True

    async def sent(message: Message) -> None:
        nonlocal has_length
        if message["type"] == "http.response.start":
            has_length = any(name.lower() == b"content-length" for name, _ in message["headers"])
            if not has_length:
                cycle.chunked_encoding = False
        elif message["type"] == "http.response.body" and not has_length:
            cycle.expected_content_length = len(message["body"])
        await send(message)

    return sent
