"""A file's bytes: all, or a range of them, as fast as the client takes them."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import httpx
import pytest

from llmfw.plugins.store_sqlite.files import SqliteFiles

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import byte_tokenizer, serving

CONTENT = bytes(range(256)) * 4096


@pytest.fixture(scope="module")
def url(server):
    with server.openai() as sdk:
        file = sdk.files.create(file=("ü.bin", CONTENT), purpose="user_data")
    return f"{server.url}/v1/files/{file.id}/content"


def test_the_whole_content_is_returned(url):
    reply = httpx.get(url, headers={"accept": "application/binary"})
    assert (reply.status_code, reply.content) == (200, CONTENT)
    assert reply.headers["content-length"] == str(len(CONTENT))
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert (
        reply.headers["content-disposition"] == "attachment; filename=\"_.bin\"; filename*=UTF-8''%C3%BC.bin"
    )
    assert reply.headers["accept-ranges"] == "bytes"


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=100-", 100, len(CONTENT)),
        ("bytes=-7", len(CONTENT) - 7, len(CONTENT)),
        ("bytes=300000-700000", 300000, 700001),
        ("bytes=5-999999999999", 5, len(CONTENT)),
        (f"bytes=5-{2**64}", 5, len(CONTENT)),
        (f"bytes=-{2**64}", 0, len(CONTENT)),
        (f"bytes={'0' * 30}5-{'0' * 30}9", 5, 10),
    ],
)
def test_a_range_of_the_content_is_returned(url, header, start, end):
    reply = httpx.get(url, headers={"range": header})
    assert (reply.status_code, reply.content) == (206, CONTENT[start:end])
    assert reply.headers["content-range"] == f"bytes {start}-{end - 1}/{len(CONTENT)}"
    assert reply.headers["content-length"] == str(end - start)


@pytest.mark.parametrize(
    "extra", [{"range": "bytes=0-1,4-5"}, {"range": "x"}, {"range": "bytes=0-1", "if-range": '"a"'}]
)
def test_unsupported_range_headers_return_the_whole_file(url, extra):
    reply = httpx.get(url, headers=extra)
    assert (reply.status_code, reply.content) == (200, CONTENT)


@pytest.mark.parametrize("first", [str(len(CONTENT)), str(2**63), "9" * 5000])
def test_a_range_past_the_end_is_416(url, first):
    """The reply tells the size."""
    reply = httpx.get(url, headers={"range": f"bytes={first}-"})
    assert reply.status_code == 416
    assert reply.headers["content-range"] == f"bytes */{len(CONTENT)}"
    assert reply.json()["error"]["code"] == "range_not_satisfiable"


def test_head_returns_only_headers(url):
    reply = httpx.head(url, headers={"range": "bytes=0-1"})
    assert (reply.status_code, reply.content) == (200, b"")
    assert reply.headers["content-length"] == str(len(CONTENT))


def test_slow_or_vanished_clients_block_no_other(url):
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port)) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(f"GET {address.path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 200")
        assert httpx.get(url).content == CONTENT
    assert httpx.get(url).content == CONTENT


def test_lost_content_is_an_error_not_retried(tmp_path, caplog):
    store = SqliteFiles(tmp_path / "store")
    with serving(EchoEngine(), byte_tokenizer(tmp_path), stores={"files": store}) as server:
        with server.openai() as sdk:
            file = sdk.files.create(file=("a", b"data"), purpose="user_data")
        for content in (tmp_path / "store" / "files").iterdir():
            content.unlink()
        reply = httpx.get(f"{server.url}/v1/files/{file.id}/content")
        assert (reply.status_code, reply.json()["error"]["code"]) == (500, "file_lost")
        assert reply.headers["x-should-retry"] == "false"
        assert str(tmp_path) not in reply.text
        assert "GET /v1/files/{file_id}/content failed: " in caplog.text  # no text of the client
        assert httpx.delete(f"{server.url}/v1/files/{file.id}").json()["deleted"]
