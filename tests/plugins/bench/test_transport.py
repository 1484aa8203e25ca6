"""An answer is read in every framing HTTP/1.1 has, and each way of failing is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from llmfw.plugins.bench.errors import BenchError
from llmfw.plugins.bench.transport import Answer, Transport, TransportError


@asynccontextmanager
async def answering(answer: bytes, hold: bool, seen: list[bytes] | None = None) -> AsyncIterator[str]:
    """Answer one request with these bytes, then close the connection, or wait until the client does; yields the URL.

    Head and body of the request go into `seen`.
    """
    ended = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        if hold:
            rest = await reader.read()
            if seen is not None:
                seen.extend((head, rest))
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await ended.wait()


async def get(answer: bytes, hold: bool = False, patience: float = 5.0) -> Answer:
    async with answering(answer, hold) as url:
        return await Transport(url, {}, patience).exchange("GET", "/")


@pytest.mark.parametrize(
    "framed",
    [
        b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nbody",
        b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbod\r\n1\r\ny\r\n0\r\n\r\n",
        b"HTTP/1.0 201 Created\r\n\r\nbody",
    ],
)
async def test_the_body_is_read_completely(framed):
    answer = await get(framed)
    assert (answer.status, answer.body) == (201, b"body")


async def test_a_complete_answer_needs_no_close():
    answer = await asyncio.wait_for(get(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", hold=True), 5)
    assert answer.body == b"ok"


@pytest.mark.parametrize(
    ("sent", "hold", "said"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbod\r\n",
            0,
            "closed before the answer ended",
        ),
        (b"", False, "closed before the answer ended"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", False, "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbod", True, "nothing was sent for 0.1 s"),
    ],
)
async def test_an_incomplete_answer_is_an_error(sent, hold, said):
    with pytest.raises(TransportError, match=said):
        await get(sent, hold, patience=0.1 if hold else 5.0)


async def test_a_refused_connection_is_an_error():
    with pytest.raises(TransportError, match="Connection refused"):
        await Transport("http://127.0.0.1:9", {}, 5.0).exchange("GET", "/")


@pytest.mark.parametrize("url", ["127.0.0.1:30000", "ftp://host", "http://", "http://host:port"])
def test_invalid_urls_are_refused(url):
    with pytest.raises(BenchError, match="is not a URL"):
        Transport(url, {}, 5.0)


async def test_path_headers_and_body_are_sent():
    seen: list[bytes] = []
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", hold=True, seen=seen) as url:
        await Transport(f"{url}/base/", {"A": "b"}, 5.0).exchange("POST", "/v1", b"body")
    line, *headers = seen[0].decode().split("\r\n")
    assert line == "POST /base/v1 HTTP/1.1"
    assert {f"Host: {url[7:]}", "Connection: close", "A: b", "Content-Length: 4"} <= set(headers)
    assert seen[1] == b"body"
