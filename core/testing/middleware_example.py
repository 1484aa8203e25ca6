"""An example of what middleware does to a request and its reply, for `HTTPMiddlewareTests`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Header = tuple[bytes, bytes]


@dataclass(frozen=True, kw_only=True)
class MiddlewareExample:
    """A request, the application's reply to it, and the reply that the client must get.

    Attributes:
        method, path, headers: method, path and headers of the request.
        status, reply_headers, reply: status, headers and body of the application's reply. A reply in one part
            gets a content-length.
        expected_status: status that the client gets; None: the application's.
        expected_headers: all headers that the client gets, in any order. Leave out content-length: the tests
            check it if the application has sent one.
        is_passed_on: whether the application gets the request. If so, the client must get the application's
            body; the tests decode a body with a content-encoding first.
    """

    method: str = "POST"
    path: str = "/v1/chat/completions"
    headers: Sequence[Header] = ()
    status: int = 200
    reply_headers: Sequence[Header] = ()
    reply: Sequence[bytes] = (b"",)
    expected_status: int | None = None
    expected_headers: Sequence[Header] = ()
    is_passed_on: bool = True
