"""A proxy's `x-forwarded-for` is an address or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from llmfw.api.server.forwarded import UNKNOWN, ForwardedAddress, _is_valid, behind_proxies

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


async def seen_of(peer: Any, forwarded: bytes | None, trusted: tuple[str, ...] = ()) -> tuple[Any, str]:
    """Return client and scheme that an application sees; the peer of a Unix socket is None."""
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"], scope["scheme"]))

    headers = [] if forwarded is None else [(b"x-forwarded-for", forwarded), (b"x-forwarded-proto", b"https")]
    server = ("/run/llmfw.sock", None) if peer is None else ("10.0.0.1", 80)
    scope: Any = {"type": "http", "client": peer, "server": server, "scheme": "http", "headers": headers}
    await behind_proxies(app, trusted)(scope, None, None)  # type: ignore[arg-type]
    return seen[0]


@pytest.mark.parametrize(
    ("peer", "trusted", "client"),
    [
        ("127.0.0.1", (), "10.0.0.9"),
        ("::1", (), "10.0.0.9"),
        ("10.1.1.1", (), "10.1.1.1"),
        ("10.1.1.1", ("10.1.0.0/16",), "10.0.0.9"),
        ("10.2.1.1", ("10.1.0.0/16",), "10.2.1.1"),
    ],
)
async def test_named_proxies_are_believed(peer: str, trusted: tuple[str, ...], client: str) -> None:
    (host, _), scheme = await seen_of((peer, 5), b"10.0.0.9", trusted)
    assert (host, scheme) == (client, "https" if client == "10.0.0.9" else "http")


async def test_a_proxy_on_a_unix_socket_is_believed() -> None:
    """Otherwise all of its clients would be on this machine, for which /admin is open without keys."""
    assert await seen_of(None, b"10.0.0.9") == (("10.0.0.9", 0), "https")
    assert await seen_of(None, None) == (None, "http")
    assert (await seen_of(None, b"unix"))[0] == (UNKNOWN, 0)


@pytest.mark.parametrize("forwarded", [b"", b" ", b",", b"10.0.0.9,", b"10.0.0.9, "])
@pytest.mark.parametrize("peer", [("127.0.0.1", 5), None])
async def test_a_client_that_is_left_out_is_unknown(forwarded: bytes, peer: Any) -> None:
    client, _ = await seen_of(peer, forwarded)
    assert client == (UNKNOWN, 0)


async def test_long_texts_are_not_kept() -> None:
    before = _is_valid.cache_info().misses
    for number in range(3):
        await client_of(b"a" * 3000 + b"%d" % number)
    assert _is_valid.cache_info().misses == before
