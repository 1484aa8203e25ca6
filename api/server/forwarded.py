"""Reads the client's address and scheme from `x-forwarded-for` and `x-forwarded-proto` of trusted proxies.

uvicorn's middleware reads the headers. It uses the text of `x-forwarded-for` as the client's address without
checking the text, and does not recognize proxies on a Unix socket. The address is logged, and decides what a
client may do.
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Awaitable, Sequence
from functools import lru_cache
from typing import Any, cast

from litestar.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

UNKNOWN = "unknown"
"""Replaces an invalid address.

The proxy's address is not used instead, because the server may trust the proxy more than the proxy's clients.
"""

MAX_ADDRESS = 64
"""Maximum number of characters of an address. Longer texts, which clients can send, are not kept."""

_READ = frozenset({b"x-forwarded-for", b"x-forwarded-proto"})
"""Headers that uvicorn's middleware reads."""

THIS_MACHINE = ("127.0.0.0/8", "::1")

_UNIX = f"unix-{uuid.uuid4().hex}"
"""Stands for the address of a client on a Unix socket, so that no text of `x-forwarded-for` is equal to it."""


def behind_proxies(app: ASGIApp, trusted: Sequence[str] = ()) -> ASGIApp:
    """Wrap an application so that it sees the clients of trusted proxies.

    Proxies on this machine are trusted: on its loopback addresses and on a Unix socket.

    Args:
        trusted: addresses or networks of further proxies, such as "10.0.0.0/8".
    """
    proxies = [*THIS_MACHINE, _UNIX, *trusted]
    return _Forwarded(app, ProxyHeadersMiddleware(cast("Any", ForwardedAddress(app)), proxies))


class ForwardedAddress:
    """ASGI middleware that replaces an invalid client address by UNKNOWN, and an invalid port by 0.

    uvicorn's own proxy middleware must wrap this middleware.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one connection."""
        if client := scope.get("client"):
            host, port = client
            scope["client"] = (host if _is_address(host) else UNKNOWN, port if 0 <= port < 2**16 else 0)
            if host == _UNIX:
                scope["client"] = None
        return self._app(scope, receive, send)


class _Forwarded:
    """ASGI middleware that passes forwarded requests through uvicorn's proxy middleware, and others by it.

    Sets the address of two kinds of clients before uvicorn reads it. Clients on a Unix socket get an address of a
    trusted proxy. A client that `x-forwarded-for` leaves out is UNKNOWN; uvicorn would take it for the proxy itself.

    Args:
        app: the application.
        proxied: the application inside uvicorn's proxy middleware.
    """

    def __init__(self, app: ASGIApp, proxied: Any) -> None:
        self._app = app
        self._proxied = proxied

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one connection."""
        headers = scope.get("headers", ())
        if _READ.isdisjoint(dict(headers)):
            return self._app(scope, receive, send)
        server = scope.get("server")
        if scope.get("client") is None and server is not None and server[1] is None:
            scope["client"] = (_UNIX, 0)
        scope["headers"] = _with_client(headers)
        return self._proxied(scope, receive, send)


def _with_client(headers: Any) -> Any:
    """Return headers in which the last element of `x-forwarded-for` is not empty."""
    places = [place for place, (name, _) in enumerate(headers) if name == b"x-forwarded-for"]
    if not places or headers[places[-1]][1].rpartition(b",")[2].strip():
        return headers
    changed = list(headers)
    changed[places[-1]] = (b"x-forwarded-for", headers[places[-1]][1] + UNKNOWN.encode())
    return changed


def _is_address(host: str) -> bool:
    return len(host) <= MAX_ADDRESS and _is_valid(host)


@lru_cache(maxsize=1024)
def _is_valid(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "scope_id", None) or "a").isalnum()
