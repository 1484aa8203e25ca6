"""A web server with images, good and bad ones, and the network on which it stands at a public address."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import httpcore

from .picture_files import file_of, picture_of

PUBLIC = "93.184.216.34"
IMAGE = file_of(picture_of())

FORBIDDEN_TARGETS = (
    "http://127.0.0.1/secret",
    "http://127.0.0.1:22/",
    "http://localhost/secret",
    "http://[::1]/secret",
    "http://[::ffff:127.0.0.1]/secret",
    "http://[::ffff:7f00:1]/secret",
    "http://[64:ff9b::7f00:1]/secret",
    "http://[fd00:ec2::254]/latest/meta-data",
    "http://169.254.169.254/latest/meta-data",
    "http://169.254.169.254.nip.example/latest/meta-data",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://2852039166/latest/meta-data",
    "http://0251.0376.0251.0376/latest/meta-data",
    "http://0xa9fea9fe/latest/meta-data",
    "http://0xA9.0xFE.0xA9.0xFE/latest/meta-data",
    "http://2130706433/secret",
    "http://017700000001/secret",
    "http://0x7f.1/secret",
    "http://127.1/secret",
    "http://0/secret",
    "http://10.0.0.7/secret",
    "http://192.168.1.1/secret",
    "http://172.17.0.1/secret",
    "http://100.64.0.1/secret",
    "http://224.0.0.1/secret",
    "http://255.255.255.255/secret",
    "http://user:password@images.example/good",
    "http://images.example:6379/good",
    "http://images.example:0/good",
    "http://%31%32%37.0.0.1/secret",
    "http://\uff11\uff12\uff17.0.0.1/secret",
    "http://127\u3002" + "0.0.1/secret",
    "ftp://images.example/good",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "//127.0.0.1/secret",
    "data:image/png;base64,AAAA",
    "http://images.example\\@127.0.0.1/secret",
    "http://private.example/secret",
    "http://mixed.example/secret",
    "http://none.example/secret",
    "http://[/secret",
)
"""URLs that must not be fetched, neither directly nor by a redirect."""

NAMES = {
    "images.example": [PUBLIC],
    "other.example": [PUBLIC],
    "private.example": ["10.1.2.3"],
    "mixed.example": [PUBLIC, "192.168.0.9"],
    "169.254.169.254.nip.example": ["169.254.169.254"],
    "metadata.google.internal": ["169.254.169.254"],
    "localhost": ["127.0.0.1", "::1"],
}


class Names:
    """A resolver: NAMES, addresses as they are, and what the C library makes of numbers.

    `changing.example` is public at the first look-up and on this machine at each later one.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if host == "changing.example":
            return [PUBLIC] if self.asked.count(host) == 1 else ["127.0.0.1"]
        if host == "slow.example":
            await asyncio.sleep(600)
        if host in NAMES:
            return NAMES[host]
        if ":" in host or host.replace(".", "").isdigit():
            return [host]
        raise OSError("no such name")


class Internet(httpcore.AsyncNetworkBackend):
    """A network where PUBLIC is a port of this machine. Records what is dialled.

    Args:
        port: port of the image host, at whichever port it is dialled.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.dialled: list[str] = []
        self._real = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.dialled.append(host)
        if host != PUBLIC:
            raise httpcore.ConnectError("nobody there")
        return await self._real.connect_tcp("127.0.0.1", self.port, timeout)


class ImageHost:
    """The web server. Records the requests that it gets.

    `/good` has an image, `/to?URL` redirects to a URL, `/hops/N` redirects N times and then to `/good`.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.port = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextlib.asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[ImageHost]:
        """Serve until the block ends."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            path = head[0].split(" ")[1]
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            self.requests.append((path, headers))
            await self._answer(path, writer)
        writer.close()
        self._tasks.discard(task)

    async def _answer(self, path: str, writer: asyncio.StreamWriter) -> None:
        name, _, rest = path.strip("/").partition("/")
        if path.startswith("/to?"):
            place = path[4:].encode("latin-1")
            writer.write(b"HTTP/1.1 302 Found\r\nset-cookie: a=b\r\nlocation: " + place + b"\r\n\r\n")
        elif name == "hops":
            following = f"/hops/{int(rest) - 1}" if int(rest) > 1 else "/good"
            writer.write(f"HTTP/1.1 307 Hop\r\nlocation: {following}\r\ncontent-length: 0\r\n\r\n".encode())
        elif name == "endless":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n\r\n")
            while not writer.is_closing():
                writer.write(bytes(2**16))
                await writer.drain()
        elif name == "slow":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
            while not writer.is_closing():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)
        elif name == "slow-head":
            while not writer.is_closing():
                writer.write(b"HTTP/1.1 200 OK\r\n" if not rest else b"x: y\r\n")
                rest = "begun"
                await writer.drain()
                await asyncio.sleep(0.05)
        elif name == "silent":
            await asyncio.sleep(600)
        else:
            writer.write(RESPONSES.get(name, b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno"))
        await writer.drain()


def _whole(body: bytes, kind: str = "image/png", more: str = "") -> bytes:
    return (
        f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{more}content-length: {len(body)}\r\n\r\n".encode()
        + body
    )


RESPONSES = {
    "good": _whole(IMAGE),
    "wrong-type": _whole(IMAGE, "text/html"),
    "page": _whole(b"<html>a page</html>", "image/png"),
    "gzipped": _whole(IMAGE, more="content-encoding: gzip\r\n"),
    "lying": b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\nx",
    "short": b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\nx",
    "nowhere": b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n",
    "no-http": b"SSH-2.0-OpenSSH_9.6\r\n",
    "long-head": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 2**20 + b"\r\n\r\n",
    "error": b"HTTP/1.1 500 Oops\r\ncontent-length: 6\r\n\r\nsecret",
    "partial": b"HTTP/1.1 206 Partial\r\ncontent-length: 2\r\n\r\nxx",
}
