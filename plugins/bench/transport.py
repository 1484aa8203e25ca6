"""A minimal HTTP/1.1 client with one connection per request, at little CPU cost.

An ordinary client library spends 30 to 60 µs of CPU time on each event of a stream, at the expense of a
server on the same machine. Here, an event costs one httptools callback. Redirects, proxies and compression
are not supported.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import httptools

from .errors import BenchError


class TransportError(Exception):
    """The server cannot be reached, or the connection ended before the response was complete."""


@dataclass
class Answer:
    """An HTTP response: its status (0: unknown yet), and the chunks of its body with their times."""

    status: int = 0
    reads: list[tuple[float, bytes]] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        """The whole body of the response."""
        return b"".join(data for _, data in self.reads)


class Transport:
    """Sends requests to one server.

    Args:
        base_url: URL with scheme, host, and optionally a prefix of all paths.
        headers: headers of every request.
        timeout: seconds without a byte after which a request fails.

    Raises:
        BenchError: `base_url` is not an HTTP or HTTPS URL.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], timeout: float) -> None:
        try:
            parts = urlsplit(base_url)
            port = parts.port
        except ValueError as error:
            raise BenchError(f"{base_url!r} is not a URL: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BenchError(f"{base_url!r} is not a URL; it must look like http://127.0.0.1:30000")
        self._host = parts.hostname
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = port or (443 if self._tls else 80)
        self._path = parts.path.rstrip("/")
        common = {"Host": parts.netloc.rpartition("@")[2], "Connection": "close", **headers}
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in common.items())
        self._timeout = timeout

    async def exchange(self, method: str, path: str, body: bytes = b"") -> Answer:
        """Send one request and return its complete response.

        Raises:
            TransportError: there was no response, or it is incomplete.
        """
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n"
        loop = asyncio.get_running_loop()
        reader = _Reader(head.encode() + body, self._timeout, loop)
        try:
            async with asyncio.timeout(self._timeout):
                await loop.create_connection(lambda: reader, self._host, self._port, ssl=self._tls)
        except TimeoutError as error:
            raise TransportError(f"no connection within {self._timeout:g} s") from error
        except OSError as error:
            raise TransportError(_reason(error)) from error
        return await reader.done


def _reason(error: OSError) -> str:
    """Return why there is no connection.

    Errors of name resolution and of TLS have their own numbers, which `os.strerror` does not know.
    """
    if isinstance(error, (socket.gaierror, ssl.SSLError)):
        return error.strerror or str(error)
    return os.strerror(error.errno) if error.errno else str(error)


class _Reader(asyncio.Protocol):
    """Sends a request and sets the future `done` to its response.

    The `on_` methods are httptools' callbacks.
    """

    def __init__(self, request: bytes, timeout: float, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[Answer] = loop.create_future()
        self._request = request
        self._timeout = timeout
        self._loop = loop
        self._answer = Answer()
        self._parser = httptools.HttpResponseParser(self)
        self._framed = False
        self._ended = False
        self._error: str | None = None
        self._last = time.perf_counter()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not inherit from it
        self._transport.write(self._request)
        self._timer = self._loop.call_later(self._timeout, self._check_timeout)

    def data_received(self, data: bytes) -> None:
        self._last = time.perf_counter()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the answer is not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        whole = self._ended or (self._answer.status and not self._framed and exc is None)
        if self._error is None and not whole:
            self._error = f"the connection was closed before the answer ended{f': {exc}' if exc else ''}"
        if self.done.done():
            return  # the waiting caller was cancelled
        if self._error is None:
            self.done.set_result(self._answer)
        else:
            self.done.set_exception(TransportError(self._error))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._framed |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        self._answer.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self._answer.reads.append((self._last, data))

    def on_message_complete(self) -> None:
        self._ended = True
        self._transport.abort()  # nothing is left to send; `connection_lost` sets `done`

    def _fail(self, why: str) -> None:
        self._error = why
        self._transport.abort()

    def _check_timeout(self) -> None:
        left = self._last + self._timeout - time.perf_counter()
        if left <= 0:
            self._fail(f"nothing was sent for {self._timeout:g} s")
        else:
            self._timer = self._loop.call_later(left, self._check_timeout)
