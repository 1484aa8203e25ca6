"""Converts exceptions to Anthropic's error body.

The HTTP statuses are the same as on other routes, except for an overloaded server.
"""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap
from msgspec import UNSET

from llmfw.api.http.errors import body_of, handle, status_of
from llmfw.api.schemas.anthropic import AnthropicError, AnthropicErrorDetail, UnsupportedThread
from llmfw.core.base.errors import OverloadedError, TenantLimitError

OVERLOADED = 529
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    OVERLOADED: "overloaded_error",
}


def anthropic_error(error: Exception) -> AnthropicError:
    """Return Anthropic's error body for an exception."""
    status, detail = anthropic_status(error), body_of(error).error
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    refuses_thread = detail.param == "thread" and detail.code == "unsupported_parameter"
    details = UnsupportedThread(["thread"]) if refuses_thread else UNSET
    return AnthropicError(AnthropicErrorDetail(kind, detail.message, detail.param or UNSET, details))


def anthropic_status(error: Exception) -> int:
    """Return the HTTP status of an exception.

    For an overloaded server, this is Anthropic's own status 529.
    """
    overloaded = isinstance(error, OverloadedError) and not isinstance(error, TenantLimitError)
    return OVERLOADED if overloaded else status_of(error)


def handle_as_anthropic(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return the error reply for an exception of a route. Like `handle`, but with Anthropic's error body."""
    response = handle(request, error)
    response.status_code = anthropic_status(error)
    response.content = msgspec.json.encode(anthropic_error(error))
    return response


ANTHROPIC_HANDLERS: ExceptionHandlersMap = {
    HTTPException: handle_as_anthropic,
    Exception: handle_as_anthropic,
}
