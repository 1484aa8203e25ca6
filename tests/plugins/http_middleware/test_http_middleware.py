"""`cors` and `gzip`: their promises as middleware, and what they do to replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from llmfw.core.testing import HTTPMiddlewareTests, MiddlewareExample
from llmfw.core.testing.exchange import EVENTS, JSON, exchange
from llmfw.plugins.http_middleware.cors import Cors
from llmfw.plugins.http_middleware.gzip import Gzip

from .examples import cors_examples, gzip_examples

ORIGIN = "https://app.example.com"
PREFLIGHT = [(b"access-control-request-method", b"POST")]
WANTS = [(b"accept-encoding", b"gzip, br")]
LONG = b'{"text": "%s"}' % (b"again " * 1_000)


@pytest.mark.parametrize("origins", [(ORIGIN, "http://b.example"), ("*",)])
class TestCors(HTTPMiddlewareTests):
    @pytest.fixture
    def middleware(self, origins: tuple[str, ...]) -> Cors:
        return cors(*origins)

    @pytest.fixture
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"origin", ORIGIN.encode())]

    @pytest.fixture
    def examples(self, origins: tuple[str, ...]) -> Sequence[MiddlewareExample]:
        return cors_examples(allows_any=origins == ("*",))


class TestGzip(HTTPMiddlewareTests):
    @pytest.fixture
    def middleware(self) -> Gzip:
        return Gzip(Gzip.Options())

    @pytest.fixture
    def examples(self) -> Sequence[MiddlewareExample]:
        return gzip_examples()


def cors(*origins: str, **options: Any) -> Cors:
    return Cors(Cors.Options(origins=origins, **options))


def from_page(origin: str) -> list[tuple[bytes, bytes]]:
    return [(b"origin", origin.encode())]


def test_preflights_are_answered() -> None:
    asked = (b"access-control-request-headers", b"authorization, x-stainless-os")
    got = exchange(cors(ORIGIN), method="OPTIONS", headers=[*from_page(ORIGIN), *PREFLIGHT, asked])
    assert (got.path, got.status) == (None, 204)
    assert got.header(b"access-control-allow-origin") == ORIGIN.encode()
    assert got.header(b"access-control-allow-headers") == asked[1]
    assert b"DELETE" in got.header(b"access-control-allow-methods")
    assert got.header(b"vary") == b"origin"


def test_header_injection_is_not_repeated() -> None:
    asked = (b"access-control-request-headers", b"a\x00b, c")
    got = exchange(cors(ORIGIN), method="OPTIONS", headers=[*from_page(ORIGIN), *PREFLIGHT, asked])
    assert got.header(b"access-control-allow-headers") == b""


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        ORIGIN + ".evil.example",
        "http://app.example.com",
        ORIGIN + ":8443",
        "",
    ],
)
@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
def test_other_origins_get_no_permission(origin: str, method: str) -> None:
    got = exchange(cors(ORIGIN), method=method, headers=[*from_page(origin), *PREFLIGHT])
    assert got.path is not None
    assert got.header(b"access-control-allow-origin") == b""
    assert got.header(b"vary") == b"origin"


def test_two_origins_get_no_permission() -> None:
    got = exchange(cors(ORIGIN), headers=[*from_page(ORIGIN), *from_page("https://evil.example")])
    assert got.header(b"access-control-allow-origin") == b""


def test_replies_name_the_origin_and_no_credentials() -> None:
    got = exchange(cors(ORIGIN, "http://b.example"), headers=from_page("http://b.example"))
    assert got.header(b"access-control-allow-origin") == b"http://b.example"
    assert b"x-request-id" in got.header(b"access-control-expose-headers")
    assert got.header(b"access-control-allow-credentials") == b""


def test_any_origin_is_a_star() -> None:
    assert exchange(cors("*"), headers=from_page("null")).header(b"access-control-allow-origin") == b"*"


def test_a_long_reply_is_compressed() -> None:
    got = exchange(Gzip(Gzip.Options()), headers=WANTS, reply=[LONG], reply_headers=[JSON, (b"etag", b'"a"')])
    assert got.header(b"content-encoding") == b"gzip"
    assert got.header(b"vary") == b"accept-encoding"
    assert got.header(b"etag") == b'W/"a"'
    assert int(got.header(b"content-length")) < len(LONG) / 10
    assert got.body == LONG


@pytest.mark.parametrize(
    ("headers", "reply", "reply_headers"),
    [
        ([], [LONG], [JSON]),
        ([(b"accept-encoding", b"gzip;q=0")], [LONG], [JSON]),
        ([(b"accept-encoding", b"br, deflate")], [LONG], [JSON]),
        (WANTS, [b"{}"], [JSON]),
        (WANTS, [LONG], [EVENTS]),
        (WANTS, [LONG, LONG], [JSON]),
        (WANTS, [LONG], [(b"content-type", b"application/octet-stream")]),
        (WANTS, [LONG], [JSON, (b"content-encoding", b"identity")]),
        (WANTS, [LONG], [JSON, (b"cache-control", b"no-transform")]),
    ],
)
def test_other_replies_pass_unchanged(headers: Any, reply: list[bytes], reply_headers: Any) -> None:
    got = exchange(Gzip(Gzip.Options()), headers=headers, reply=reply, reply_headers=reply_headers)
    assert got.header(b"content-encoding") != b"gzip"
    assert b"".join(message["body"] for message in got.messages[1:]) == b"".join(reply)


def test_head_requests_keep_their_length() -> None:
    headers = [JSON, (b"content-length", b"5000")]
    got = exchange(
        Gzip(Gzip.Options()), method="HEAD", headers=WANTS, reply=[b"", b""], reply_headers=headers
    )
    assert got.header(b"content-length") == b"5000"
