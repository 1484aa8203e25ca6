"""Checks `Host` and `Origin`, so that web pages in a browser cannot use a server that needs no key.

A page of another site can send requests to this machine. It can also read the replies if its DNS name points
here (DNS rebinding). The headers `Origin` and `Host` reveal this. This is plain ASGI middleware around the
whole application.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Collection
from functools import lru_cache
from urllib.parse import urlsplit

import msgspec
from litestar.types import ASGIApp, Receive, Scope, Send

from llmfw.api.schemas.anthropic import AnthropicError, AnthropicErrorDetail
from llmfw.api.schemas.errors import ErrorBody, ErrorDetail
from llmfw.core.base.config import ServerConfig

ANY = "*"

MAX_NAME = 300
"""Maximum number of characters of a `Host` header that can name this machine. DNS names have at most 253."""


class KnownHosts:
    """Refuses requests whose `Host` or `Origin` names neither this machine nor an allowed host.

    Args:
        hosts: allowed names and addresses in addition to this machine's; None: `Host` is not checked.
        origins: allowed origins, such as "https://app.example.com", in addition to pages of this machine;
            None: `Origin` is not checked.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None, origins: Collection[str] | None) -> None:
        self._app = app
        self._hosts = None if hosts is None or ANY in hosts else {host.lower() for host in hosts}
        self._origins = None if origins is None or ANY in origins else {_normal(each) for each in origins}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one connection."""
        problem = None if scope["type"] == "lifespan" else self._problem(scope)  # type: ignore[comparison-overlap]
        if problem is None:
            return self._app(scope, receive, send)
        return _send_403(send, scope["path"], problem)

    def _problem(self, scope: Scope) -> str | None:
        for name, value in scope["headers"]:
            if name == b"host" and self._hosts is not None:
                host = value.decode("latin-1")
                if not self._is_known(host):
                    return f"host is {host[:100]!r}; allow it with --allow-host"
            elif name == b"origin" and self._origins is not None:
                origin = value.decode("latin-1")
                if _normal(origin) not in self._origins and not _is_local_page(origin):
                    return f"origin is {origin[:100]!r}; allow it with --allow-origin"
        return None

    def _is_known(self, host: str) -> bool:
        assert self._hosts is not None
        name, is_local = _named(host) if len(host) <= MAX_NAME else ("", False)
        return is_local or name in self._hosts or host.lower() in self._hosts


def known_hosts(app: ASGIApp, config: ServerConfig, *, has_keys: bool) -> ASGIApp:
    """Return the application, wrapped in checks of `Host` and `Origin` if the settings require them.

    Without API keys on a loopback address, both are checked. Otherwise, each is checked if its list is not
    empty.

    Args:
        has_keys: whether clients must send an API key.
    """
    is_private = not has_keys and listens_on_loopback(config.host)
    hosts = config.allow_host if is_private or config.allow_host else None
    origins = config.allow_origin if is_private or config.allow_origin else None
    return app if hosts is None and origins is None else KnownHosts(app, hosts, origins)


def listens_on_loopback(host: str) -> bool:
    """Return whether a server that listens on this address or name can be reached only from this machine."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return False
    return bool(found) and all(is_this_machine(str(entry[4][0])) for entry in found)


def is_this_machine(name: str) -> bool:
    """Return whether a name or an address, without a port, is a loopback address or "localhost"."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@lru_cache(maxsize=128)
def _named(host: str) -> tuple[str, bool]:
    """Return the host of a `Host` header, and whether it is this machine."""
    name = _host_name(host)
    return name, is_this_machine(name)


def _host_name(host: str) -> str:
    """Return the host of a `Host` header, without port, brackets and a final dot; "" if it is invalid."""
    if "@" in host:  # the part before it is not a host, but some programs take it for one
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


def _is_local_page(origin: str) -> bool:
    """Return whether this machine serves the pages of an origin."""
    scheme, separator, host = origin.partition("://")
    return bool(separator) and scheme.lower() in ("http", "https") and is_this_machine(_host_name(host))


def _normal(origin: str) -> str:
    return origin.strip().rstrip("/").lower()


async def _send_403(send: Send, path: str, problem: str) -> None:
    message = f"{problem}, or start the server with --api-key"
    if path.startswith("/v1/messages"):
        body = msgspec.json.encode(AnthropicError(AnthropicErrorDetail("permission_error", message)))
    else:
        detail = ErrorDetail(message=message, type="invalid_request_error", code="host_not_allowed")
        body = msgspec.json.encode(ErrorBody(detail))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
