"""A proxy's `x-forwarded-for` is an address or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from llmfw.api.server.forwarded import UNKNOWN, ForwardedAddress

FORGED = b'10.0.0.9:1 - "DELETE /v1/files/file-1 HTTP/1.1" 200 OK tenant=bob'


async def client_of(forwarded: bytes, peer: str = "127.0.0.1") -> Any:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"])

    scope: Any = {"type": "http", "client": (peer, 5), "headers": [(b"x-forwarded-for", forwarded)]}
    await ProxyHeadersMiddleware(ForwardedAddress(app))(scope, None, None)  # type: ignore[arg-type]
    return seen[0]


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        (b"10.0.0.9", ("10.0.0.9", 0)),
        (b"1.2.3.4, 10.0.0.9:77", ("10.0.0.9", 77)),
        (b"[2001:db8::1]:77", ("2001:db8::1", 77)),
        (b"10.0.0.9:99999", ("10.0.0.9", 0)),
        (b"10.0.0.9:-1", ("10.0.0.9", 0)),
        (FORGED, (UNKNOWN, 0)),
        (b"admin", (UNKNOWN, 0)),
        (b"\xe2\x80\xae\xff", (UNKNOWN, 0)),
        (b"fe80::1%a\t[2026-01-01 00:00:00] forged", (UNKNOWN, 0)),
        (b"a" * 3000, (UNKNOWN, 0)),
    ],
)
async def test_a_forwarded_address_is_an_address(forwarded: bytes, client: tuple[str, int]) -> None:
    assert await client_of(forwarded) == client


async def test_only_a_trusted_proxy_names_its_client() -> None:
    assert await client_of(b"10.0.0.9", peer="10.1.1.1") == ("10.1.1.1", 5)
