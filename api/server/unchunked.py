"""Replies in HTTP/1.0, which has no chunks: without a content-length, the end of the connection ends the reply."""

from __future__ import annotations

from litestar.types import Message, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def unchunked(cycle: RequestResponseCycle, send: Send) -> Send:
    """Return a `send` function for replies without chunks. The connection must end with the reply."""
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
