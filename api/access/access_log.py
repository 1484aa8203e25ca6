"""The access log: one line per request, with its tenant and without secrets.

uvicorn's own access log has no tenant. It also shows query strings, and some clients send their key there.
"""

from __future__ import annotations

import logging
import re
from http.client import responses
from typing import Any
from urllib.parse import quote

from litestar.types import HTTPScope, Message

from llmfw.api.text.terms import key_name
from llmfw.core.base.json_log import with_fields
from llmfw.core.client.trace_context import traceparent

from .redaction import Redaction

logger = logging.getLogger("llmfw.access")

MAX_PATH = 200  # characters
_PLAIN = re.compile(r"[a-z_]{1,30}")


class AccessLog:
    """Logs each request when its reply starts.

    Args:
        redact: function that hides API keys in the path and in the request id.
    """

    def __init__(self, redact: Redaction) -> None:
        self._redact = redact

    def note(self, scope: HTTPScope, message: Message) -> None:
        """Log a request, given the start of its reply. Called in the context of the request, for its tenant's name."""
        if not logger.isEnabledFor(logging.INFO):
            return
        request_id = dict(message["headers"]).get(b"x-request-id", b"").decode("latin-1")  # type: ignore[typeddict-item]
        status: int = message["status"]  # type: ignore[typeddict-item]
        fields = access_fields(scope, status, key_name.get(), request_id, self._redact)
        if parent := traceparent.get():
            fields["trace_id"] = parent.split("-")[1]
        logger.info("%s", _line(fields), extra=with_fields(fields))


def access_fields(
    scope: HTTPScope, status: int, tenant: str, request_id: str, redact: Redaction
) -> dict[str, Any]:
    """Return the log's fields of a request: client, method, path with query, version of HTTP, status and, if
    known, tenant and request id.

    The values of query parameters are hidden.

    Args:
        redact: function that hides API keys in the path and in the request id.
    """
    client = scope.get("client")
    path = scope["path"]
    is_route = scope.get("path_template") == path  # all of it is the server's own text
    target = quote(path if is_route else redact(path), safe="/*…")
    if len(target) > MAX_PATH:
        target = f"{target[:MAX_PATH]}…"
    if query := scope.get("query_string"):
        target += f"?{_redacted(query)}"
    fields: dict[str, Any] = {
        "client": f"{client[0]}:{client[1]}" if client else "-",
        "method": scope["method"],
        "path": target,
        "http_version": scope["http_version"],
        "status": status,
    }
    if tenant:
        fields["tenant"] = tenant
    if request_id:
        fields["request_id"] = redact(request_id)
    return fields


def access_line(scope: HTTPScope, status: int, tenant: str, request_id: str, redact: Redaction) -> str:
    """Return the log line of a request; the arguments are those of `access_fields`."""
    return _line(access_fields(scope, status, tenant, request_id, redact))


def _line(fields: dict[str, Any]) -> str:
    request = f"{fields['method']} {fields['path']} HTTP/{fields['http_version']}"
    phrase = responses.get(fields["status"], "")
    line = f'{fields["client"]} - "{request}" {fields["status"]} {phrase}'.rstrip()
    line += f" tenant={fields['tenant']}" if "tenant" in fields else ""
    return f"{line} id={fields['request_id']}" if "request_id" in fields else line


def _redacted(query: bytes) -> str:
    """Return a query string with the values of its parameters hidden.

    Unusual parameter names are hidden too, because they may be keys.
    """
    parts = query[:MAX_PATH].decode("latin-1").split("&")
    names = [
        name if equals and _PLAIN.fullmatch(name) else ""
        for name, equals, _ in (p.partition("=") for p in parts)
    ]
    return "&".join(f"{name}=***" if name else "***" for name in names)
