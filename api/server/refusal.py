"""The error and the reply by which the HTTP protocol refuses a request before it reaches the application."""

from __future__ import annotations

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from llmfw.api.schemas.errors import ErrorBody, ErrorDetail


class RefusedError(Exception):
    """Raised in the parser's callbacks to refuse a request.

    Args:
        logged: text for the log, if the message quotes the client and must not be logged; "": the message is
            logged.
    """

    def __init__(self, status: int, code: str, message: str, logged: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.logged = logged


def refusal_reply(status: int, code: str, message: str) -> bytes:
    """Return a whole HTTP/1.1 reply with an error body, after which the connection closes."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    body = msgspec.json.encode(ErrorBody(ErrorDetail(message=message, type=kind, code=code)))
    head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return STATUS_LINE[status] + head + body
