"""JSON bodies: what is counted, what is refused, and how large ones wait for each other."""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from llmfw.api.server import body_budget
from llmfw.api.server.json_scan import JsonScan
from llmfw.api.server.limits import BodyLimits
from llmfw.core.base.errors import RequestError

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import Served, byte_tokenizer, serving, wait_until

LIMITS = BodyLimits(body_bytes=10**6, buffered_bytes=10**6, depth=20, values=10**6, nodes=10**6)
CHAT = "/v1/chat/completions"


def random_value(rng: random.Random, depth: int):
    kind = rng.randrange(6 if depth else 4)
    if kind == 4:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == 5:
        return {rng.choice('a"\\{é'): random_value(rng, depth - 1) for _ in range(rng.randrange(4))}
    return rng.choice((1.5, None, 'a"[\\', '\\"{}', "[[,:", "\\\\", ""))


def depth_of(value) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


def nodes_of(value) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(nodes_of, value.values()))
    return 1 + sum(map(nodes_of, value)) if isinstance(value, list) else 0


@pytest.mark.parametrize("seed", range(100))
def test_counts_equal_those_of_the_decoded_value(seed):
    rng = random.Random(seed)
    value = random_value(rng, 7)
    raw = json.dumps(value, ensure_ascii=rng.random() < 0.5).encode()
    scan = JsonScan(LIMITS)
    limited = JsonScan(msgspec.structs.replace(LIMITS, depth=3))
    too_deep = False
    while raw:
        cut = rng.randint(1, 5)
        scan.feed(raw[:cut])
        try:
            if not too_deep:
                limited.feed(raw[:cut])
        except RequestError:
            too_deep = True
        raw = raw[cut:]
    assert scan.num_nodes == nodes_of(value)
    assert too_deep == (depth_of(value) > 3)


@pytest.mark.parametrize(
    "body",
    [
        b'{"x":' + b"[" * 1000 + b"]" * 1000 + b"}",
        b'{"x":' + b'{"a":' * 100_000,
        b'{"x":[' + b"[]," * 200_000 + b"1]}",
        b'{"x":[' + b"1," * 1_100_000 + b"1]}",
        b"{" + b'"a":1,' * 150_000 + b'"x":1}',
        b'{"messages":[{}],' + b",".join(b'"k%d":1' % i for i in range(2000)) + b"}",
    ],
)
def test_complex_bodies_are_refused_before_they_are_decoded(server: Served, body):
    reply = httpx.post(server.url + CHAT, content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "json_too_complex"


@pytest.mark.parametrize("encoding", ["gzip", "br", "gzip, identity", "nonsense"])
def test_an_encoded_body_is_415_naming_the_encoding(server: Served, encoding):
    for path in (CHAT, "/v1/files", "/v1/tokenize", "/v1/messages"):
        content_type = "multipart/form-data; boundary=b" if path == "/v1/files" else "application/json"
        headers = {"content-encoding": encoding, "content-type": content_type}
        reply = httpx.post(server.url + path, content=b"{}", headers=headers)
        assert reply.status_code == 415
        assert repr(encoding) in reply.json()["error"]["message"]


def test_a_charset_other_than_utf_8_is_415(server: Served):
    for charset, status in (("utf-16", 415), ("latin-1", 415), ("UTF-8", 200), ('"utf-8"', 200)):
        headers = {"content-type": f"application/json; charset={charset}"}
        body = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
        assert httpx.post(server.url + CHAT, content=body, headers=headers).status_code == status


def test_identity_is_no_encoding(server: Served):
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    assert server.post(CHAT, body, headers={"content-encoding": "identity"}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/batches"),
        ("POST", "/v1/uploads"),
        ("POST", "/v1/uploads/upload_0/complete"),
        ("PUT", "/admin/policy"),
    ],
)
def test_routes_without_text_have_small_body_limits(server: Served, method, path):
    body = b'{"metadata": {"a": "' + b"a" * 2**20 + b'"}}'
    reply = httpx.request(method, server.url + path, content=body)
    assert reply.status_code == 413
    assert "1048576" in reply.json()["error"]["message"] or "1 MiB" in reply.json()["error"]["message"]


def chat_of(size: int) -> bytes:
    return b'{"messages":[{"role":"user","content":"Hi"}],"max_tokens":1,"user":"' + b"a" * size + b'"}'


def unfinished(served: Served, key: str, size: int) -> socket.socket:
    """Send the beginning of a body that never ends."""
    sock = socket.create_connection(("127.0.0.1", urlsplit(served.url).port or 0))
    sock.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n" % CHAT.encode())
    sock.sendall(b"Authorization: Bearer %s\r\nContent-Type: application/json\r\n\r\n" % key.encode())
    sock.sendall(chat_of(size))
    return sock


def test_unfinished_bodies_are_evicted_for_other_clients(tmp_path, monkeypatch):
    # Else they count as slow on a machine that stands still for five seconds, and go before a 503 is seen.
    monkeypatch.setattr(body_budget, "SLOW_S", 600.0)
    size = 300_000
    received: dict[body_budget.Body, int] = {}
    grow = body_budget.BodyBudget.grow

    def noted_grow(budget: body_budget.BodyBudget, body: body_budget.Body, num_bytes: int) -> bool:
        received[body] = num_bytes
        return grow(budget, body, num_bytes)

    monkeypatch.setattr(body_budget.BodyBudget, "grow", noted_grow)

    def post(key: str, num_bytes: int) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.post(served.url + CHAT, content=chat_of(num_bytes), headers=headers, timeout=20)

    with (
        serving(
            EchoEngine(),
            byte_tokenizer(tmp_path),
            max_body_mb=1,
            max_buffered_mb=1,
            api_key=(("eve", "secret-of-eve"), ("bob", "secret-of-bob")),
        ) as served,
        contextlib.ExitStack() as stack,
    ):
        socks = [stack.enter_context(unfinished(served, "secret-of-eve", size)) for _ in range(3)]
        wait_until(lambda: sum(received.values()) >= 3 * size)
        refusal = post("secret-of-eve", size)
        assert refusal.status_code == 503
        assert refusal.json()["error"]["code"] == "overloaded"
        assert "memory for bodies" in refusal.json()["error"]["message"]
        assert int(refusal.headers["retry-after"]) >= 1
        assert post("secret-of-eve", 10_000).status_code == 200
        assert post("secret-of-bob", size).status_code == 200
        evicted, _, _ = select.select(socks, [], [], 20)  # which one depends on how their packets arrived
        assert b" 503 " in evicted[0].recv(4096)
        for _ in range(8):
            assert post("secret-of-bob", size).status_code == 200
