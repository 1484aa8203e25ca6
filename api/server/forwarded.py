"""Checks the client address that a trusted proxy sends in `x-forwarded-for`.

uvicorn uses the header's text as the client's address without checking it. The address is logged, and decides
what a client may do.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from litestar.types import Receive, Scope, Send

UNKNOWN = "unknown"
"""Replaces an invalid address.

The proxy's address is not used instead, because the server may trust the proxy more than the proxy's clients.
"""


class ForwardedAddress:
    """ASGI middleware that replaces an invalid client address by UNKNOWN, and an invalid port by 0.

    uvicorn's own proxy middleware must wrap this middleware.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if client := scope.get("client"):
            host, port = client
            scope["client"] = (host if _is_address(host) else UNKNOWN, port if 0 <= port < 2**16 else 0)
        await self._app(scope, receive, send)


def _is_address(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "scope_id", None) or "a").isalnum()
