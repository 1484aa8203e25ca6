"""The error envelope: all four keys always, `param` and `code` a string or null."""

from __future__ import annotations

import msgspec


class ErrorDetail(msgspec.Struct, kw_only=True):
    """What is wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct):
    """The body of every reply with a status of 400 or more, and of an error in a stream."""

    error: ErrorDetail
