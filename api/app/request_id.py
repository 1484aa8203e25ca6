"""Gives every reply an id, including replies for unknown paths and replies of plugins' routes."""

from __future__ import annotations

import os
import re

from litestar.types import HTTPScope, Message

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,200}")


def add_request_id(scope: HTTPScope, message: Message) -> None:
    """Add `x-request-id` to the start of a reply: the client's id if it is well formed, else a new one.

    The id is also sent as `request-id`, where Anthropic's SDKs look for it.
    """
    given = dict([*scope["headers"]][::-1]).get(b"x-request-id", b"")  # of several headers, the first
    request_id = given if _SANE_ID.fullmatch(given) else f"req_{os.urandom(16).hex()}".encode()
    message["headers"] = [  # type: ignore[typeddict-unknown-key]
        *message["headers"],  # type: ignore[typeddict-item]
        (b"x-request-id", request_id),
        (b"request-id", request_id),
    ]
