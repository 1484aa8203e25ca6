"""Sends error replies outside of Litestar, in the format of the API that the path belongs to."""

from __future__ import annotations

import msgspec
from litestar.types import Send

from llmfw.api.anthropic.errors import anthropic_error, anthropic_status
from llmfw.api.http.errors import body_of, retry_advice, status_of


async def send_error(send: Send, path: str, error: Exception) -> None:
    """Send the reply for an exception, in the format of the API that the path belongs to."""
    is_anthropic = path.startswith("/v1/messages")
    status = anthropic_status(error) if is_anthropic else status_of(error)
    body = msgspec.json.encode(anthropic_error(error) if is_anthropic else body_of(error))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    advice = retry_advice(error, status)
    headers += [(name.encode(), str(value).encode()) for name, value in advice.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
