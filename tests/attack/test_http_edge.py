"""Attacks on the HTTP edge. "Had" is what one of them did to a server without the limits, on two cores."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ..crash.server import ServerProcess
from .harness import unhurt

OPTIONS = ("--header-timeout", "3", "--body-timeout", "3", "--send-timeout", "3")
CHAT = "/v1/chat/completions"
LASTS_S = 4.0


def head(path: str = CHAT, length: int | None = None, *more: str) -> bytes:
    """Return a request line with headers, chunked without a length."""
    body = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = (f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", body, *more)
    return "\r\n".join([*lines, "", ""]).encode()


def posted(body: bytes, path: str = CHAT) -> bytes:
    """Return a request with a body."""
    return head(path, len(body)) + body


@contextlib.contextmanager
def connected(server: ServerProcess) -> Iterator[socket.socket]:
    """A connection that is dropped without a word, whatever it waits for."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
        yield sock


def send_quietly(sock: socket.socket, data: bytes) -> None:
    """Send bytes until the server no longer takes them."""
    with contextlib.suppress(OSError):
        sock.sendall(data)


def flood(server: ServerProcess, data: bytes, *, is_patient: bool = True) -> list[int]:
    """Send bytes on one connection; return the statuses of what comes back.

    Args:
        is_patient: wait for the reply; else leave as soon as all is sent.
    """
    received = bytearray()
    with contextlib.suppress(OSError), connected(server) as sock:
        sender = threading.Thread(target=send_quietly, args=(sock, data))
        sender.start()
        with contextlib.suppress(OSError):
            while is_patient and b"\r\n\r\n" not in received and (chunk := sock.recv(2**20)):
                received += chunk
        if is_patient:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        sender.join()
    return [int(line.split()[1]) for line in received.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def at_once(num: int, attack: Callable[[], object], lasts_s: float = LASTS_S) -> list[object]:
    """Repeat an attack in several threads for a while; return what each run returned."""
    deadline = time.monotonic() + lasts_s

    def repeat() -> list[object]:
        found = [attack()]
        while time.monotonic() < deadline:
            found.append(attack())
        return found

    with ThreadPoolExecutor(num) as pool:
        return [each for found in pool.map(lambda _: repeat(), range(num)) for each in found]


HEADS = {
    "header": head()[:-2] + b"A: " + b"a" * 30_000_000,
    "headers": head()[:-2] + b"A: b\r\n" * 1_000_000,
    "url": b"GET /" + b"a" * 10_000_000,
    "line breaks": b"\r\n" * 10_000_000,
    "chunk extension": head() + b"1;" + b"a" * 20_000_000,
    "trailers": head() + b"0\r\n" + b"A: b\r\n" * 1_000_000,
    "trailer": head() + b"0\r\nA: " + b"a" * 20_000_000,
    "chunks": head() + b"1\r\n \r\n" * 2_000_000,
    "pipelined": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100_000,
    "no http": b"\x16\x03\x01" * 1_000_000,
}


@pytest.mark.parametrize("kind", HEADS)
def test_endless_heads_end_their_connection(server, kind):
    with unhurt(server):
        at_once(4, lambda: flood(server, HEADS[kind]), 2)


def messages_of(num: int) -> bytes:
    message = b'{"role":"user","content":"a"}'
    return b'{"messages":[' + b",".join([message] * num) + b"]}"


BODIES = {
    "messages": (CHAT, messages_of(1_000_000)),
    "allowed messages": (CHAT, messages_of(2_048)),
    "arrays": (CHAT, b'{"messages":[' + b"[]," * 5_000_000 + b"1]}"),
    "nesting": (CHAT, b'{"messages":' + b"[" * 1_000_000),
    "members": (CHAT, b'{"metadata":{' + b",".join(b'"%d":1' % i for i in range(90_000)) + b"}}"),
    "quotes": (CHAT, b'{"messages":[' + b'"",' * 900_000 + b"1]}"),
    "escapes": (CHAT, b'{"messages":[{"role":"user","content":"' + b"\\n" * 8_000_000 + b'"}]}'),
    "text": (CHAT, b'{"messages":[{"role":"user","content":"' + b"word " * 3_000_000 + b'"}]}'),
    "spaces": (CHAT, b'{"messages":[{"role":"user","content":"' + b" " * 30_000 + b'"}]}'),
    "tokenize": ("/tokenize", b'{"prompt":"' + b"1a" * 8_000_000 + b'"}'),
    "tokenize prompts": ("/tokenize", b'{"prompt":[' + b",".join([b'"%s"' % (b"1a" * 990)] * 2000) + b"]}"),
    "detokenize": ("/detokenize", b'{"tokens":[' + b"5," * 900_000 + b"5]}"),
    "detokenize lists": (
        "/detokenize",
        b'{"tokens":[' + b",".join([b"[" + b"55," * 1_900 + b"5]"] * 60) + b"]}",
    ),
    "prompts": (
        "/v1/completions",
        b'{"max_tokens":1,"prompt":[' + b",".join([b'"%s"' % (b"1a" * 990)] * 2000) + b"]}",
    ),
    "choices": (
        "/v1/completions",
        json.dumps(
            {"prompt": "a", "n": 128, "max_tokens": 1, "logit_bias": {str(i): 1 for i in range(16_000)}}
        ).encode(),
    ),
    "fields": (CHAT, messages_of(1)[:-1] + b"".join(b',"f%d":1' % i for i in range(40_000)) + b"}"),
}


@pytest.mark.parametrize("kind", BODIES)
def test_large_bodies_delay_no_other_client(server, kind):
    path, body = BODIES[kind]
    with unhurt(server):
        found = at_once(4, lambda: flood(server, posted(body, path)))
    assert all(status not in (500, 502) for statuses in found for status in statuses)


@pytest.mark.parametrize("kind", ["messages", "allowed messages", "text", "tokenize"])
def test_work_ends_when_its_client_leaves(server, kind):
    path, body = BODIES[kind]
    with unhurt(server):
        at_once(8, lambda: flood(server, posted(body, path), is_patient=False))


def test_slow_heads_do_not_block_others(server):
    with unhurt(server), contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connected(server)) for _ in range(1500)]
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.send(b"G" if time.monotonic() < deadline - 4 else b"E")
            time.sleep(0.2)


def test_slow_bodies_do_not_block_others(server):
    request = head(length=100_000)
    with unhurt(server), contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connected(server)) for _ in range(1500)]
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.sendall(request)
        deadline = time.monotonic() + 6
        while time.monotonic() < deadline:
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.send(b" ")
            time.sleep(0.5)


def test_clients_that_never_read_are_dropped(server):
    body = json.dumps({"prompt": "a", "stream": True, "max_tokens": 50}).encode()
    tokens = b'{"tokens":[' + b",".join([b"[" + b"55," * 1_900 + b"5]"] * 500) + b"]}"
    with unhurt(server), contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connected(server)) for _ in range(40)]
        for i, sock in enumerate(socks):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with contextlib.suppress(OSError):
                sock.sendall(posted(tokens, "/detokenize") if i % 2 else posted(body, "/v1/completions"))
        time.sleep(8)


def test_many_connections_do_not_block_others(server):
    def knock() -> None:
        with contextlib.suppress(OSError), connected(server):
            return

    with unhurt(server):
        at_once(4, knock)
