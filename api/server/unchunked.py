"""Replies to HTTP/1.0 clients, which do not support chunked encoding.

A reply without content-length ends with the connection.
"""

from __future__ import annotations

from litestar.types import Message, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def unchunked(cycle: RequestResponseCycle, send: Send) -> Send:
    """Wrap the `send` of a request cycle to send its reply unchunked.

    The connection must be closed after the reply.
    """
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
