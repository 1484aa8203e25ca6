"""Requests that proxies and servers may read in two ways, and other protocols: each is answered or refused, at once."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import Served, byte_tokenizer, serving
from .test_protocol import connected, reply_of

HOST = b"Host: localhost\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\n" + HOST
CLOSE = b"Connection: close\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"

AMBIGUOUS = {
    "two authorizations": b"GET /health HTTP/1.1\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n"
    + HOST
    + b"\r\n",
    "two API keys": b"GET /health HTTP/1.1\r\nX-Api-Key: a\r\nX-Api-Key: a\r\n" + HOST + b"\r\n",
    "HTTP/0.9": b"GET /health HTTP/0.9\r\n" + HOST + b"\r\n",
    "both lengths": POST + CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "both, other order": POST + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + SMUGGLED,
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!" + SMUGGLED,
    "one length twice": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello" + SMUGGLED,
    "list of lengths": POST + b"Content-Length: 5, 5\r\n\r\nhello" + SMUGGLED,
    "signed length": POST + b"Content-Length: +5\r\n\r\nhello" + SMUGGLED,
    "negative length": POST + b"Content-Length: -5\r\n\r\nhello" + SMUGGLED,
    "hexadecimal length": POST + b"Content-Length: 0x5\r\n\r\nhello" + SMUGGLED,
    "huge length": POST + b"Content-Length: 99999999999999999999\r\n\r\nhello" + SMUGGLED,
    "space before colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two codings": POST + CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "obsolete folding": b"GET /health HTTP/1.1\r\n" + HOST + b"X-A: a\r\n b\r\n\r\n",
    "bare LF": b"GET /health HTTP/1.1\nHost: localhost\n\n",
    "bare CR": b"GET /health HTTP/1.1\r\n" + HOST + b"X-A: a\rX-B: b\r\n\r\n",
    "NUL in a header": b"GET /health HTTP/1.1\r\n" + HOST + b"X-A: a\0b\r\n\r\n",
    "no header name": b"GET /health HTTP/1.1\r\n: x\r\n\r\n",
    "LF after a chunk's size": POST + CHUNKED + b"\r\n2\n{}\n0\n\n" + SMUGGLED,
    "no size of a chunk": POST + CHUNKED + b"\r\nzz\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
    "huge chunk": POST + CHUNKED + b"\r\nfffffffffffffffff\r\n{}" + SMUGGLED,
    "two hosts": b"GET /health HTTP/1.1\r\nHost: evil.example\r\n" + HOST + b"\r\n",
    "the same host twice": b"GET /health HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    "host of the URL": b"GET http://evil.example/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "host of the header": b"GET http://localhost/health HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "no host, with one in the URL": b"GET http://localhost/health HTTP/1.1\r\n\r\n",
    "no such port": b"GET http://localhost:99999999/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "bytes in a path": b"GET /v1/models/\xff HTTP/1.1\r\n" + HOST + b"\r\n",
    "fragment": b"GET /v1/models#x HTTP/1.1\r\n" + HOST + b"\r\n",
    "unknown version": b"GET /health HTTP/9.9\r\n" + HOST + b"\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + b"\x01" * 180,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
}

ANSWERED = {
    "absolute URL": (b"GET http://localhost/health HTTP/1.1\r\n" + HOST, 200),
    "absolute URL with a port": (b"GET http://LOCALHOST:1/health HTTP/1.1\r\nHost: localhost:1\r\n", 200),
    "absolute URL of an address": (b"GET http://[::1]:1/health HTTP/1.1\r\nHost: [::1]:1\r\n", 200),
    "no host in HTTP/1.0": (b"GET /health HTTP/1.0\r\n", 200),
    "other expectation": (POST + b"Expect: 200-maybe\r\nContent-Length: 0\r\n", 417),
    "two expectations": (POST + b"Expect: 100-continue, x\r\nContent-Length: 0\r\n", 417),
    "an expectation twice": (POST + b"Expect: 100-continue\r\nExpect: x\r\nContent-Length: 0\r\n", 417),
    "%00 in a path": (b"GET /v1/files/%00 HTTP/1.1\r\n" + HOST, 404),
    "dots in a path": (b"GET /v1/files/%2e%2e%2f%2e%2e%2fetc%2fpasswd/content HTTP/1.1\r\n" + HOST, 404),
    "WebSocket": (
        b"GET /health HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        + HOST,
        200,
    ),
    "TRACE": (b"TRACE / HTTP/1.1\r\n" + HOST, 405),
    "OPTIONS *": (b"OPTIONS * HTTP/1.1\r\n" + HOST, 404),
    "CONNECT": (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n", 405),
    "long URL": (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + HOST, 414),
    "coding in HTTP/1.0": (
        b"POST /v1/completions HTTP/1.0\r\n" + CHUNKED + b"Content-Type: text/plain\r\n",
        415,
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("model"))) as served:
        yield served


def reply_to(server: Served, raw: bytes) -> tuple[bytes, bytes]:
    """Return head and body of the only reply, after which the server has closed the connection within a second."""
    with connected(server) as sock:
        sock.settimeout(1)
        sock.sendall(raw)
        received = reply_of(sock)
    assert received.count(b"HTTP/1.1 ") == 1
    head, _, body = received.partition(b"\r\n\r\n")
    return head, body


@pytest.mark.parametrize("raw", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_ambiguous_requests_end_their_connection(
    server: Served, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    head, body = reply_to(server, raw)
    assert head.startswith(b"HTTP/1.1 400")
    error = json.loads(body)["error"]
    assert error["code"] == "invalid_http"
    assert "callback" not in error["message"]
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(("raw", "status"), ANSWERED.values(), ids=ANSWERED)
def test_odd_requests_are_answered(
    server: Served, raw: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    head, _ = reply_to(server, raw + CLOSE + (b"0\r\n\r\n" if CHUNKED in raw else b""))
    assert int(head.split()[1]) == status
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("hosts", [b"", HOST + HOST])
def test_servers_with_keys_need_one_host_header(tmp_path: Path, hosts: bytes) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), api_key=(("", "k" * 20),)) as served:
        head, _ = reply_to(served, b"GET /health HTTP/1.1\r\n" + hosts + b"\r\n")
    assert head.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("raw", ["TLS", "HTTP/2"])
def test_other_protocols_are_named(server: Served, raw: str) -> None:
    message = json.loads(reply_to(server, AMBIGUOUS[raw])[1])["error"]["message"]
    assert raw in message
    assert "proxy" in message


@pytest.mark.parametrize("stream", [True, False])
def test_http_1_0_replies_are_not_chunked(server: Served, stream: bool) -> None:
    body = json.dumps({"prompt": "ab", "max_tokens": 2, "stream": stream}).encode()
    head, got = reply_to(
        server,
        b"POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body) + body,
    )
    assert b"chunked" not in head
    if stream:
        assert got.startswith(b"data: ")
        assert got.endswith(b"data: [DONE]\n\n")
    else:
        assert json.loads(got)["choices"][0]["text"] == "ab"


@pytest.mark.parametrize(
    "raw",
    [
        b"GET http://a:99999999/SECRET HTTP/1.1\r\n" + HOST,
        b"GET http://localhost/health HTTP/1.1\r\nHost: SECRET\r\n",
        POST + b"Expect: SECRET\r\n",
    ],
)
def test_refused_heads_are_logged_without_their_text(
    server: Served, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert b"SECRET" in b"".join(reply_to(server, raw + b"\r\n"))
    assert "SECRET" not in caplog.text
