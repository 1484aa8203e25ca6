"""Restricts access to /admin, /flush_cache and all paths below them, including paths without a route.

Plain ASGI middleware around the application. API keys are checked by `access.authentication.ApiKey`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Mapping
from urllib.parse import urlsplit

import msgspec
from litestar.types import ASGIApp, Receive, Scope, Send

from llmfw.api.access.key_table import ADMIN
from llmfw.api.schemas.errors import ErrorBody, ErrorDetail
from llmfw.api.text.terms import serving_client

PREFIXES = frozenset({"admin", "flush_cache"})
"""First segments of the paths that are for administrators."""
PATHS = frozenset({("v1", "load_lora_adapter"), ("v1", "unload_lora_adapter")})
"""First two segments of further ones."""


class AdminPaths:
    """Passes each connection to one of two applications, depending on its path.

    Args:
        others: application for all other paths.
        admin: application for the paths that start with one of `PREFIXES` or of `PATHS`.
    """

    def __init__(self, others: ASGIApp, admin: ASGIApp) -> None:
        self._others = others
        self._admin = admin

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one connection."""
        kind: str = scope["type"]
        is_admin = kind != "lifespan" and is_for_admins(scope["path"])
        return (self._admin if is_admin else self._others)(scope, receive, send)


class FromThisMachine:
    """Rejects connections from other machines, and requests that another server's web page may have sent.

    All other connections count as an administrator's, so that plugins' routes below /admin may send commands.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        kind: str = scope["type"]
        problem = None if _is_local(scope) else "is open to clients on this machine alone"
        problem = problem or _browser_refusal(scope)
        if problem is None:
            with serving_client(ADMIN, None):
                await self._app(scope, receive, send)
        elif kind == "http":
            await _send_403(send, f"/{first_part(scope['path'])} {problem}")
        else:
            await send(
                {"type": "websocket.close", "code": 1008, "reason": f"/{first_part(scope['path'])} {problem}"}
            )


def is_for_admins(path: str) -> bool:
    """Return whether a path is for administrators. Empty segments are skipped, as in routing."""
    first, _, rest = path.lstrip("/").partition("/")
    return first in PREFIXES or (first, first_part(rest)) in PATHS


def first_part(path: str) -> str:
    """Return a path's first segment. Empty segments are skipped, as in routing."""
    return path.lstrip("/").partition("/")[0]


def _is_local(scope: Scope) -> bool:
    """Return whether a client connected through the loopback interface or a Unix socket."""
    client, server = scope.get("client"), scope.get("server")
    if client is None:  # the case for a Unix socket, but also for a closed connection
        return server is not None and server[1] is None
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _browser_refusal(scope: Scope) -> str | None:
    """Return the reason to refuse a request that a web page of another server may have sent; None for others.

    Web pages can send simple requests to any host. If a page's own host name resolves to this machine (DNS
    rebinding), the page can read the answers, too.
    """
    headers = dict(scope["headers"])
    # A page can send a GET without an origin, as for an image. Browsers say so in this header.
    if not _is_of_own_page(headers) and (
        b"origin" in headers or headers.get(b"sec-fetch-site", b"none") != b"none"
    ):
        return "is not open to pages in a browser, except for this server's own"
    host = headers.get(b"host", b"localhost").decode("latin-1")
    if _is_name(host):
        return f"is open by the names of this machine's loopback address alone, and host is {host[:100]!r}"
    return None


def _is_of_own_page(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a browser says that a page of this server sent a request.

    Pages cannot set these headers. A page whose own name resolves to this machine looks the same, except for the
    name, which `_is_name` finds in `Host`.
    """
    if headers.get(b"sec-fetch-site") != b"same-origin":
        return False
    origin, host = headers.get(b"origin"), headers.get(b"host")
    return origin is None or (host is not None and origin in (b"http://" + host, b"https://" + host))


def _is_name(host: str) -> bool:
    """Return whether a Host header contains a DNS name other than "localhost".

    Anyone can register a DNS name that resolves to this machine.
    """
    name = ""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        ipaddress.ip_address(name)
    except ValueError:
        return name != "localhost"
    return False


async def _send_403(send: Send, problem: str) -> None:
    message = (
        f"{problem}; to open it to others, start the server with --admin-api-key KEY, and send "
        "the key in the header 'Authorization: Bearer KEY'"
    )
    detail = ErrorDetail(message=message, type="invalid_request_error", code="admin_forbidden")
    body = msgspec.json.encode(ErrorBody(detail))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
