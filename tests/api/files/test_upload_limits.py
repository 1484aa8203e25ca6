"""Uploads that are too large, are broken off, or are slow; and the memory that large ones take."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from llmfw.plugins.store_sqlite.files import SqliteFiles

from ...doubles import serve_echo
from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import Served, byte_tokenizer, serving
from .forms import BOUNDARY, upload_form

MIB = 2**20
HEADERS = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
TOO_LARGE = 513 * MIB


def connect(server: Served) -> socket.socket:
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname, address.port))


def head(length: int | None, *extra: str) -> bytes:
    """Return the head of an upload's request."""
    size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    lines = [
        "POST /v1/files HTTP/1.1",
        "host: localhost",
        f"content-type: {HEADERS['content-type']}",
        size,
        *extra,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def endless() -> Iterator[bytes]:
    """Yield the beginning of a form, and a file of 16 GiB."""
    yield upload_form()[:-16]
    yield from itertools.repeat(bytes(MIB), 2**14)


def received(connection: socket.socket) -> bytes:
    """Return all that comes until the server closes the connection."""
    connection.settimeout(10)
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_sdk_raises_413_for_large_files(sdk):
    with pytest.raises(openai.APIStatusError, match="at most 536870912 bytes") as raised:
        sdk.files.create(file=bytes(TOO_LARGE), purpose="batch")
    assert (raised.value.status_code, raised.value.code) == (413, "request_too_large")


def test_a_too_large_length_is_refused_before_sending(server):
    with connect(server) as connection:
        connection.sendall(head(TOO_LARGE, "expect: 100-continue"))
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_chunked_uploads_are_refused_past_the_limit(server, monkeypatch):
    monkeypatch.setattr("llmfw.api.files.service.MAX_FILE_BYTES", 8 * MIB)
    body = (piece for piece, _ in zip(endless(), range(100), strict=False))
    reply = httpx.post(f"{server.url}/v1/files", content=body, headers=HEADERS, timeout=30)
    assert (reply.status_code, reply.json()["error"]["param"]) == (413, "file")


def test_an_endless_upload_is_cut_off(server, monkeypatch):
    monkeypatch.setattr("llmfw.api.files.service.MAX_FILE_BYTES", MIB)
    monkeypatch.setattr("llmfw.api.routes.lingering.MAX_DRAINED_BYTES", 4 * MIB)
    started = time.monotonic()
    with contextlib.suppress(httpx.HTTPError):  # it may find its connection closed before it sees the reply
        reply = httpx.post(f"{server.url}/v1/files", content=endless(), headers=HEADERS, timeout=30)
        assert reply.status_code == 413
    assert time.monotonic() - started < 10


def test_a_silent_refused_client_is_disconnected(server, monkeypatch):
    monkeypatch.setattr("llmfw.api.routes.lingering.MAX_QUIET_S", 0.2)
    with connect(server) as connection:
        connection.sendall(head(1000, "x-request-id: mine").replace(b"multipart/form-data", b"text/plain"))
        reply = received(connection)
    assert reply.startswith(b"HTTP/1.1 415")
    assert b"connection: close" in reply


def test_a_wrong_field_is_reported_before_the_file(server):
    body = upload_form(bytes(40 * MIB), ("purpose", b"fun"))
    started = time.monotonic()
    reply = httpx.post(f"{server.url}/v1/files", content=body, headers=HEADERS, timeout=30)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "purpose")
    assert time.monotonic() - started < 10


def test_a_connection_is_reusable_after_an_upload(server):
    with httpx.Client() as client:
        for _ in range(2):
            reply = client.post(f"{server.url}/v1/files", content=upload_form(), headers=HEADERS)
            assert reply.status_code == 200
            assert "connection" not in reply.headers


@pytest.mark.parametrize("chunked", [False, True])
def test_a_disconnected_upload_leaves_nothing(tmp_path, chunked):
    store = SqliteFiles(tmp_path)
    before = set(tmp_path.rglob("*"))
    tokenizer = byte_tokenizer(tmp_path)
    with serving(EchoEngine(), tokenizer, stores={"files": store}) as server:
        begun, ended = watch(store)
        with connect(server) as connection:
            piece = upload_form(bytes(MIB))[:-30]
            framed = f"{len(piece):x}\r\n".encode() + piece + b"\r\n" if chunked else piece
            connection.sendall(head(None if chunked else 10 * MIB) + framed)
            assert begun.wait(5)
        assert ended.wait(5)
        assert httpx.get(f"{server.url}/v1/files").json()["data"] == []
        assert [path for path in set(tmp_path.rglob("*")) - before if path.parent.name == "files"] == []


def watch(store: SqliteFiles) -> tuple[threading.Event, threading.Event]:
    """Return what is set when the store has begun to store a file, and when that is over."""
    begun, ended = threading.Event(), threading.Event()
    put = store.put

    async def watched(chunks: Any, describe: Any) -> Any:
        async def passing() -> Any:
            async for chunk in chunks:
                begun.set()
                yield chunk

        try:
            return await put(passing(), describe)
        finally:
            ended.set()

    store.put = watched  # type: ignore[method-assign]
    return begun, ended


def test_slow_uploads_delay_no_other(server):
    slow = [connect(server) for _ in range(50)]
    body = upload_form(b"slow")
    try:
        for connection in slow:
            connection.sendall(head(len(body)) + body[:50])
        started = time.monotonic()
        assert httpx.post(f"{server.url}/v1/files", content=upload_form(), headers=HEADERS).status_code == 200
        assert time.monotonic() - started < 5
        for connection in slow:
            connection.sendall(body[50:])
        assert all(connection.recv(100).startswith(b"HTTP/1.1 200") for connection in slow)
    finally:
        for connection in slow:
            connection.close()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to see a process's peak")
def test_a_large_file_needs_little_memory(tmp_path):
    with server_process(tmp_path) as (url, pid):
        small = httpx.post(f"{url}/v1/files", content=upload_form(bytes(MIB)), headers=HEADERS, timeout=60)
        assert small.status_code == 200
        before = forget_peak(pid)
        body = iter([upload_form()[:-16], *[bytes(MIB)] * 300, upload_form()[-16:]])
        file = httpx.post(f"{url}/v1/files", content=body, headers=HEADERS, timeout=60).json()
        assert file["bytes"] == 300 * MIB + 1
        with httpx.stream("GET", f"{url}/v1/files/{file['id']}/content", timeout=60) as reply:
            assert sum(map(len, reply.iter_raw())) == file["bytes"]
        assert peak(pid) - before < 20 * MIB


def forget_peak(pid: int) -> int:
    """Return how much memory a process has, in bytes; its peak counts from now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak(pid)


def peak(pid: int) -> int:
    """Return the most memory that a process has had, in bytes."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) * 1024


@contextmanager
def server_process(folder: Path) -> Iterator[tuple[str, int]]:
    """Serve in a process of its own; yield its address and its id."""
    byte_tokenizer(folder)
    command = [sys.executable, serve_echo.__file__, str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = next(line for line in process.stderr if "running on" in line)
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield re.search(r"http://\S+", line)[0], process.pid
        finally:
            process.terminate()
