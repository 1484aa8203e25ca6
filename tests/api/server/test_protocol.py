"""Limits on connections and heads, spoken to over bare sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from ...doubles.echo_engine import WAIT, EchoEngine
from ...doubles.serving import Served, byte_tokenizer, serving, wait_until

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LIMITS = {
    "max_connections": 8,
    "max_connections_per_address": 8,
    "max_header_bytes": 4096,
    "max_headers": 20,
    "max_url_bytes": 1000,
    "header_timeout": 1.0,
    "body_timeout": 1.0,
    "send_timeout": 1.0,
    "idle_timeout": 2.0,
}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with serving(EchoEngine(), tokenizer, **LIMITS) as served:
        yield served


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The same limits of size; a slow machine runs into no limit of time."""
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with serving(
        EchoEngine(), tokenizer, **LIMITS | {"header_timeout": 60.0, "body_timeout": 60.0}
    ) as served:
        yield served


@contextlib.contextmanager
def connected(served: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", urlsplit(served.url).port or 0), timeout=8) as sock:
        yield sock


def reply_of(sock: socket.socket) -> bytes:
    """Return all that comes until the server closes the connection."""
    received = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(65536):
            received += data
    return bytes(received)


def refused(served: Served, *pieces: bytes) -> tuple[int, str]:
    """Send pieces on a connection of their own; return the status and code that the server refuses them with."""
    with connected(served) as sock:
        for piece in pieces:
            sock.sendall(piece)
            time.sleep(0.01)
        head, _, body = reply_of(sock).partition(b"\r\n\r\n")
    assert b"connection: close" in head
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def is_alive(served: Served) -> bool:
    return httpx.get(f"{served.url}/health").is_success


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([GET + b"A: " + b"a" * 5000, b"a" * 5000], (431, "headers_too_large")),
        ([GET + b"A: ", *[b"a" * 700] * 8], (431, "headers_too_large")),
        ([GET, *[b"A: " + b"a" * 700 + b"\r\n"] * 8], (431, "headers_too_large")),
        ([GET + b"A: b\r\n" * 30], (431, "too_many_headers")),
        ([b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\n\r\n"], (414, "url_too_long")),
        ([b"GET /?q=", *[b"a" * 300] * 8], (414, "url_too_long")),
        ([b"\r\n" * 4000], (431, "headers_too_large")),
        ([b"\x16\x03\x01\x02"], (400, "invalid_http")),
        ([POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n"], (501, "unsupported_transfer_encoding")),
    ],
)
def test_heads_beyond_a_limit_are_refused(patient, pieces, expected):
    assert refused(patient, *pieces) == expected
    assert is_alive(patient)


CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([CHUNKED + b"1;", b"x" * 5000], (431, "headers_too_large")),
        ([CHUNKED + b"1\r\n{\r\n" * 5000], (400, "too_many_chunks")),
        ([CHUNKED + b"2\r\n{}\r\n0\r\n" + b"A: b\r\n" * 30], (431, "too_many_headers")),
        ([CHUNKED + b"2\r\n{}\r\n0\r\nA: ", *[b"a" * 900] * 8], (431, "headers_too_large")),
    ],
)
def test_chunked_bodies_beyond_a_limit_are_refused(patient, pieces, expected):
    assert refused(patient, *pieces) == expected


def test_trailers_do_not_become_headers(strict):
    request = (
        CHUNKED.replace(b"application/json", b"text/plain") + b"1\r\n{\r\n0\r\nContent-Type: a/b\r\n\r\n"
    )
    with connected(strict) as sock:
        sock.sendall(request)
        received = b""
        while b"'text/plain'" not in received:
            piece = sock.recv(4096)
            assert piece, received
            received += piece


def test_slow_heads_and_bodies_are_timed_out(strict):
    assert refused(strict, GET) == (408, "request_timeout")
    assert refused(strict, POST + b"Content-Length: 9\r\n\r\n{") == (408, "request_timeout")


def test_expect_100_continue_is_answered(patient):
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode()
    with connected(patient) as sock:
        sock.sendall(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert sock.recv(4096).startswith(b"HTTP/1.1 100 Continue")
        sock.sendall(body)
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("size", [10, 40_000, 400_000])
def test_a_body_may_arrive_in_pieces(patient, size):
    body = json.dumps({"messages": [{"role": "user", "content": "a" * size}], "max_tokens": 1}).encode()
    with connected(patient) as sock:
        sock.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), len(body) // 7 + 1):
            time.sleep(0.02)
            sock.sendall(body[start : start + len(body) // 7 + 1])
        assert sock.recv(4096).startswith(b"HTTP/1.1 200" if size == 10 else b"HTTP/1.1 400")


def test_only_a_few_slow_bodies_get_replies_early(patient, monkeypatch):
    monkeypatch.setattr("llmfw.api.server.connections.MAX_EARLY", 0)
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}).encode()
    with connected(patient) as sock:
        sock.sendall(POST.replace(b"/v1", b"/unknown") + b"Content-Length: 9\r\n\r\n")
        sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            sock.recv(4096)
        sock.sendall(b"123456789" + POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        sock.settimeout(8)
        received = b""
        while b"chat.completion" not in received:
            received += sock.recv(4096)
    assert received.startswith(b"HTTP/1.1 404")


def test_idle_connections_are_closed(strict):
    with connected(strict) as fresh, connected(strict) as used:
        used.sendall(GET + b"\r\n")
        while b"{" not in used.recv(4096):
            pass
        started = time.monotonic()
        assert reply_of(fresh) == b""
        assert reply_of(used) == b""
        assert time.monotonic() - started > 0.8  # looked at once a second


@pytest.mark.long
def test_clients_that_never_read_are_disconnected(strict):
    size = 32 * 2**20  # more than the buffers of both ends hold
    sent = httpx.post(
        f"{strict.url}/v1/files",
        files={"file": ("a", bytes(size))},
        data={"purpose": "user_data"},
        timeout=30,
    )
    path = f"/v1/files/{sent.json()['id']}/content"
    with connected(strict) as sock:
        sock.sendall(GET.replace(b"/health", path.encode()) + b"\r\n")
        time.sleep(3.5)
        assert 0 < len(reply_of(sock)) < size
    assert is_alive(strict)


def test_new_connections_displace_idle_ones(strict):
    with contextlib.ExitStack() as stack:
        quiet = [stack.enter_context(connected(strict)) for _ in range(8)]
        for sock in quiet[1:]:
            sock.sendall(GET)
        assert is_alive(strict)
        assert reply_of(quiet[0]) == b""


def test_requests_in_progress_are_not_displaced(strict):
    body = json.dumps({"prompt": [WAIT], "max_tokens": 1}).encode()
    request = POST.replace(b"chat/", b"") + b"Content-Length: %d\r\n\r\n" % len(body) + body
    before = len(strict.engine.requests)
    with contextlib.ExitStack() as stack:
        busy = [stack.enter_context(connected(strict)) for _ in range(8)]
        for sock in busy:
            sock.sendall(request)
        wait_until(lambda: len(strict.engine.requests) == before + 8)
        assert refused(strict) == (503, "too_many_connections")
    wait_until(lambda: is_alive(strict))


def test_pipelined_requests_are_answered_in_order(strict):
    with connected(strict) as sock:
        sock.sendall(b"".join(b"GET /health?%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % i for i in range(10)))
        received = b""
        while received.count(b'{"status":"ok"}') < 10:
            received += sock.recv(65536)


def test_pipelined_floods_are_cut_off(strict):
    with connected(strict) as sock:
        sock.sendall((GET + b"\r\n") * 200)
        received = reply_of(sock)
    assert 1 < received.count(b"HTTP/1.1 200") <= 18
    assert received.count(b"connection: close") == 1


def test_upgrades_are_answered_in_http_1_1(strict):
    with connected(strict) as sock:
        sock.sendall(GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")


def waiting_request() -> bytes:
    """Return a request that the engine does not answer until it is aborted."""
    body = json.dumps({"prompt": [WAIT], "max_tokens": 1}).encode()
    return POST.replace(b"chat/", b"") + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize("behind", [GET + b"\r\n", POST + b"Content-Length: 900000\r\n\r\n" + b" " * 100_000])
def test_a_disconnect_ends_requests_despite_pipelined_ones(strict, caplog, behind):
    num_aborted = len(strict.engine.aborted)
    with connected(strict) as sock:
        before = len(strict.engine.requests)
        sock.sendall(waiting_request())
        wait_until(lambda: len(strict.engine.requests) == before + 1)
        sock.sendall(behind)
    wait_until(lambda: len(strict.engine.aborted) == num_aborted + 1)
    assert is_alive(strict)
    assert "Exception" not in caplog.text
    assert "ASGI callable" not in caplog.text
