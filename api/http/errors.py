"""Maps exceptions to HTTP statuses and OpenAI error bodies. All routes use this one table."""

from __future__ import annotations

import logging
import math
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap

from llmfw.api.schemas.errors import ErrorBody, ErrorDetail
from llmfw.core.base.errors import (
    ComponentError,
    ComponentFailedError,
    ConflictError,
    ContentLostError,
    CrashingRequestError,
    DeadlineError,
    EngineDeadError,
    EngineError,
    EngineRestartingError,
    LLMFWError,
    MissingScopeError,
    ModelNotFoundError,
    NotFoundError,
    NotReadyError,
    OverloadedError,
    RateLimitError,
    RequestError,
    StorageDamagedError,
    StorageError,
    StorageFullError,
    TenantLimitError,
    TooLargeError,
)

from .url_hint import url_hint

logger = logging.getLogger(__name__)

STATUS: dict[type[LLMFWError], int] = {
    MissingScopeError: 403,
    ModelNotFoundError: 404,
    NotFoundError: 404,
    TooLargeError: 413,
    ConflictError: 409,
    RequestError: 400,
    StorageFullError: 507,
    StorageDamagedError: 500,
    ContentLostError: 500,
    StorageError: 503,
    TenantLimitError: 429,
    OverloadedError: 503,
    DeadlineError: 408,
    EngineDeadError: 503,
    EngineError: 500,
    ComponentFailedError: 500,
}
"""Exception class → HTTP status. The first class that matches is used."""

MAX_MESSAGE, MAX_PARAM = 4000, 300  # characters

NO_RETRY = {"x-should-retry": "false"}
"""Header that stops SDKs from retrying.

Without it they retry after a status of 408, 409, or 500 and above.
"""

RETRY_SOON = {"retry-after": "1"}


def status_of(error: Exception) -> int:
    """Return the HTTP status of an exception."""
    if isinstance(error, HTTPException):
        return error.status_code
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)


def body_of(error: Exception) -> ErrorBody:
    """Return the error body of an exception.

    Details of unexpected exceptions are left out; the log has them.
    """
    if isinstance(error, RequestError):
        detail = ErrorDetail(
            message=_shortened(str(error), MAX_MESSAGE),
            type="invalid_request_error",
            param=_shortened(error.param, MAX_PARAM) if error.param is not None else None,
            code=error.code,
        )
    elif isinstance(error, EngineDeadError):
        code = "engine_restarting" if isinstance(error, EngineRestartingError) else "engine_dead"
        detail = ErrorDetail(message=str(error), type="server_error", code=code)
    elif isinstance(error, CrashingRequestError):
        detail = ErrorDetail(message=str(error), type="server_error", code="request_crashed_engine")
    elif isinstance(error, StorageError):
        code = next(
            (code for kind, code in _STORAGE_CODES.items() if isinstance(error, kind)), "storage_unavailable"
        )
        detail = ErrorDetail(message=_STORAGE[code], type="server_error", code=code)
    elif isinstance(error, RateLimitError):
        detail = ErrorDetail(message=str(error), type="rate_limit_error", code="rate_limit_exceeded")
    elif isinstance(error, TenantLimitError):
        detail = ErrorDetail(message=str(error), type="rate_limit_error", code="tenant_limit")
    elif isinstance(error, OverloadedError):
        code = error.code if isinstance(error, NotReadyError) else "overloaded"
        detail = ErrorDetail(message=str(error), type="server_error", code=code)
    elif isinstance(error, DeadlineError):
        detail = ErrorDetail(message=str(error), type="timeout_error", code="request_timeout")
    elif isinstance(error, ComponentFailedError | ComponentError):
        detail = ErrorDetail(message=str(error), type="server_error", code="plugin_error")
    elif isinstance(error, LLMFWError):
        detail = ErrorDetail(message=str(error), type="server_error", code="engine_error")
    elif isinstance(error, HTTPException):
        kind = "invalid_request_error" if error.status_code < 500 else "server_error"
        message, param = _message_and_parameter(error)
        detail = ErrorDetail(message=message, type=kind, param=param, code=_HTTP_CODES.get(error.status_code))
    else:
        detail = ErrorDetail(
            message="The server failed on this request; its log says why.",
            type="server_error",
            code="internal_error",
        )
    detail.message = _encodable(detail.message)
    detail.param = None if detail.param is None else _encodable(detail.param)
    return ErrorBody(detail)


_STORAGE_CODES = {
    StorageFullError: "storage_full",
    StorageDamagedError: "storage_damaged",
    ContentLostError: "file_lost",
}

_STORAGE = {
    "file_lost": "the server's storage has lost the content of this file; upload it again, or ask the operator to restore it",
    "storage_damaged": "the server's storage is damaged; ask the operator to restore it, its log says how",
    "storage_full": "the server's storage has no room for this; delete files that you do not need, or ask the operator "
    "for more room",
    "storage_unavailable": "the server's storage cannot be used now; its log says why",
}
"""Messages for clients about errors of a store, whose own messages may contain paths of the server."""


def _message_and_parameter(error: HTTPException) -> tuple[str, str | None]:
    """Return the message of an exception, and the name of the wrong parameter or None.

    Litestar names the parameter only on plugins' routes, because llmfw's own routes check bodies themselves.
    """
    found = error.extra if isinstance(error.extra, list) else []
    for each in found:
        if isinstance(each, dict) and isinstance(key := each.get("key"), str):
            return _shortened(f"{error.detail}: {key}: {each.get('message', '')}", MAX_MESSAGE), key
    return error.detail, None


def _encodable(text: str) -> str:
    """Write halves of surrogate pairs as escapes. A message may quote them, and UTF-8 cannot encode them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _shortened(text: str, limit: int) -> str:
    """Shorten a text to a limit, because it may quote megabytes of the client's request."""
    return text if len(text) <= limit else f"{text[:limit]}…"


_HTTP_CODES = {
    401: "invalid_api_key",
    404: "unknown_url",
    405: "method_not_allowed",
    413: "request_too_large",
    415: "unsupported_media_type",
    416: "range_not_satisfiable",
}


def error_response(error: Exception) -> Response[bytes]:
    """Return the error reply for an exception."""
    status = status_of(error)
    headers: dict[str, Any] = dict(getattr(error, "headers", None) or {}) | retry_advice(error, status)
    return Response(
        msgspec.json.encode(body_of(error)),
        status_code=status,
        headers=headers,
        media_type="application/json",
    )


_LASTING = (StorageFullError, StorageDamagedError, ContentLostError)
"""Errors of a store that last until someone acts."""


def retry_advice(error: Exception, status: int) -> dict[str, str]:
    """Return headers that tell the client whether and when to retry the request."""
    if isinstance(error, StorageError) and not isinstance(error, _LASTING):
        return RETRY_SOON
    if isinstance(error, ConflictError):
        return RETRY_SOON if error.passing else NO_RETRY
    if isinstance(error, OverloadedError | EngineRestartingError):
        return {"retry-after": str(max(1, math.ceil(error.retry_after_s)))}
    return NO_RETRY if status >= 500 or isinstance(error, DeadlineError) else {}


def log_unexpected(error: Exception, where: str) -> None:
    """Log an exception that the operator should know about; ignore all others.

    Errors of a store or a component are logged on one line. Exceptions that are neither LLMFWErrors nor
    HTTPExceptions are logged with their traceback.
    """
    if isinstance(error, StorageError | ComponentError):
        logger.error("%s failed: %s", where, error)
    elif not isinstance(error, LLMFWError | HTTPException):
        logger.error("%s failed", where, exc_info=error)


def route_of(request: Request[Any, Any, Any]) -> str:
    """Return a request's method and route for the log, such as "GET /v1/files/{id}".

    The result contains no text of the client.
    """
    return f"{request.method} {request.scope.get('path_template') or '(no route)'}"


def handle(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return the error reply for an exception of a route, and log the exception (see `log_unexpected`).

    For statuses 404, 405 and 413, the message names the URL (and one that is close to it), the allowed methods
    or the limit.
    """
    log_unexpected(error, route_of(request))
    where = f"{request.method} {request.url.path}"
    if isinstance(error, HTTPException) and error.status_code == 404:
        hint = url_hint(request.url.path, (route.path for route in request.app.routes))
        error.detail = f"Unknown request URL: {where}{hint and f'; {hint}'}"
    elif isinstance(error, HTTPException) and error.status_code == 405:
        allowed = _with_head((error.headers or {}).get("allow", ""))
        error.headers = {**(error.headers or {}), "allow": allowed}
        error.detail = f"{request.method} is not allowed on {request.url.path}; allowed: {allowed}"
    elif isinstance(error, HTTPException) and error.status_code == 413:
        limit = request.route_handler.resolve_request_max_body_size()
        error.detail = f"the request's body is larger than {limit} bytes"
    return error_response(error)


def _with_head(allowed: str) -> str:
    """Add HEAD to the value of `allow` if it has GET, because such paths answer HEAD (see `app.head`)."""
    methods = set(filter(None, allowed.split(", ")))
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))


EXCEPTION_HANDLERS: ExceptionHandlersMap = {HTTPException: handle, Exception: handle}
