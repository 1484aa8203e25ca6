"""OpenAI's error body. All four keys are always present; `param` and `code` may be null."""

from __future__ import annotations

import msgspec


class ErrorDetail(msgspec.Struct, kw_only=True):
    """The details of an error."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct):
    """Body of every reply with a status of 400 or more, and of an error event in a stream."""

    error: ErrorDetail
