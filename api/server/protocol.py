"""uvicorn's HTTP protocol with deadlines, and with limits that apply before anything is stored.

httptools buffers a header, a chunk extension or a trailer without limit and in quadratic time. This module
therefore counts the bytes since httptools last called back. Deadlines are checked once a second
(`ConnectionTable.watch`).
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from .connections import ConnectionTable, Occasional, has_left
from .limits import FREE_CHUNKS, MAX_PIPELINED, MIN_BYTES_PER_S, MIN_CHUNK_BYTES, ConnectionLimits
from .refusal import RefusedError, refusal_reply
from .request_head import other_protocol, problem_of
from .unchunked import unchunked

LINGER_S, LINGER_BYTES = 2.0, 2**20
"""Seconds and bytes for which a refused connection stays open, so that its client can read the reply."""

DRAINED_BYTES_PER_S = 16 * 2**20
"""Rate at which the rest of a body is read and dropped once its request is answered."""


MAX_HELD_BYTES = 2**15
"""Number of bytes of a body to buffer before its request starts. The request reads the rest as it arrives."""

LARGE_BYTES = 2**12
"""Size of a body above which to check, before its request starts, that the client is still connected."""

EARLY_S = 0.05
"""Seconds after which a request may start without its body: its client may wait for an early refusal."""


class _Expects(enum.Enum):
    """The part of a request that the parser expects next."""

    START = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()


class LimitedProtocol(HttpToolsProtocol):
    """One HTTP connection.

    Args:
        limits: limits of this connection.
        table: table of all connections.
        notes: rate limit of log lines.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ConnectionLimits,
        table: ConnectionTable,
        notes: Occasional,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._table = table
        self._notes = notes
        self._expects = _Expects.START
        self._refusal: RefusedError | None = None
        self._is_deaf = False  # received bytes are dropped
        self._is_leaving = False  # refused; closes as soon as the client has read the reply
        self._held: Any = None  # the application, until it is called for the latest request
        self._open: deque[RequestResponseCycle] = deque()  # requests without a complete reply, oldest first
        self._head_bytes = 0  # of the request that is being received, including trailers
        self._num_headers = 0
        self._body_bytes = 0
        self._num_chunks = 0
        self._silent_bytes = 0  # received since the parser last called back
        self._waited_s = 0.0  # time spent waiting for the client's bytes
        self._unread_s = 0.0  # time since the client stopped reading its replies
        self._unread_bytes = 0  # size of the write buffer at that time

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or refuse it if there are too many."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        problem = self._table.add(self, address)
        if problem is not None:
            self._refuse(503, "too_many_connections", f"{problem}; try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection, and mark all its requests as disconnected; uvicorn marks only the latest."""
        self._is_deaf = True
        self._table.remove(self)
        self.pipeline.clear()
        for cycle in self._open:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """Mark the latest request as disconnected, so that it is not started for a client that has left."""
        if self.cycle and not self.cycle.response_complete:
            self.cycle.disconnected = True

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and refuse the request if it exceeds a limit."""
        if self._is_deaf:
            self._silent_bytes += len(data)
            if self._is_leaving and self._silent_bytes > LINGER_BYTES:
                self.transport.abort()
            return
        if self._expects is _Expects.START:
            self._waited_s = 0.0
        self._silent_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._note("upgrade", "the client asks for another protocol; it is answered in HTTP/1.1")
        except httptools.HttpParserError as error:
            if self._refusal is None:
                reason = other_protocol(data) or f"this is not a valid HTTP request: {error}"
                self._refusal = RefusedError(400, "invalid_http", reason)
        if self._refusal is None and self._silent_bytes > self._limits.header_bytes:
            self._refusal = self._head_too_large()
        if self._refusal is not None:
            self._refuse(self._refusal.status, self._refusal.code, str(self._refusal), self._refusal.logged)
        elif not self._open or self._expects is _Expects.BODY:
            self._table.heard(self)
        else:
            self._table.busy(self)

    def on_message_begin(self) -> None:
        """Reset the counters for a new request."""
        super().on_message_begin()
        self._expects = _Expects.HEAD
        self._head_bytes = self._num_headers = self._body_bytes = self._num_chunks = self._silent_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Add a piece of the URL; refuse the request if the URL is too long."""
        self._silent_bytes = 0
        self._head_bytes += len(url)
        if self._head_bytes > self._limits.url_bytes:
            limit = self._limits.url_bytes
            raise self._stop(RefusedError(414, "url_too_long", f"the URL has more than {limit} bytes"))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; refuse the request if its headers exceed a limit.

        A trailer (a header sent after the body) counts toward the limits and is then dropped.
        """
        self._silent_bytes = 0
        self._num_headers += 1
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self._limits.header_bytes:
            raise self._stop(self._head_too_large())
        if self._num_headers > self._limits.headers:
            most = self._limits.headers
            raise self._stop(
                RefusedError(431, "too_many_headers", f"the request has more than {most} headers")
            )
        if self._expects is _Expects.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the request's head; start the request, or queue it behind the connection's earlier ones."""
        if len(self.pipeline) >= MAX_PIPELINED:
            message = f"more than {MAX_PIPELINED} requests wait for their replies on one connection"
            raise self._stop(RefusedError(429, "too_many_pipelined", message))
        version = self.parser.get_http_version()
        problem = problem_of(self.parser.get_method(), self.url, version, self.headers)
        if problem is not None:
            raise self._stop(RefusedError(*problem))
        super().on_headers_complete()
        self._expects = _Expects.BODY
        self._waited_s = 0.0
        self._open.append(self.cycle)

    def on_chunk_header(self) -> None:
        """Count a chunk of a body; refuse bodies with too many tiny chunks, which are costly to parse."""
        self._silent_bytes = 0
        self._num_chunks += 1
        if self._num_chunks > FREE_CHUNKS + self._body_bytes // MIN_CHUNK_BYTES:
            message = f"the body comes in {self._num_chunks} chunks of less than {MIN_CHUNK_BYTES} bytes; send larger ones"
            raise self._stop(RefusedError(400, "too_many_chunks", message))

    def on_body(self, body: bytes) -> None:
        """Add a piece of a body, or drop it if the request is already answered."""
        self._silent_bytes = 0
        self._body_bytes += len(body)
        if self.cycle.response_complete:
            self._drain(len(body))
        else:
            super().on_body(body)
            if len(self.cycle.body) > MAX_HELD_BYTES:
                self._start_held()

    def on_message_complete(self) -> None:
        """Handle the end of a request's body. Start the request if it waited for the body."""
        self._expects = _Expects.START
        self._waited_s = 0.0
        self._silent_bytes = 0
        super().on_message_complete()
        self._table.end_early(self)
        self._start_held()

    def on_response_complete(self) -> None:
        """Continue with the connection's next request. The idle timeout is enforced by `check`, not here."""
        self._open.popleft()
        self._waited_s = 0.0
        self._table.end_early(self)
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            if not self.pipeline:
                self.flow.resume_reading()
        else:
            self.flow.resume_reading()
            if not self._open:
                self._table.heard(self)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start a request once its whole body or MAX_HELD_BYTES of it has arrived, or after EARLY_S.

        At most MAX_EARLY requests run before their whole body has arrived, so a slow body costs little more
        than its buffer.
        """
        if cycle is not self.cycle or not cycle.more_body or cycle.waiting_for_100_continue:
            self._start(cycle, app)
        else:
            self._held = app
            self.loop.call_later(EARLY_S, self._start_early, cycle)

    def _start_early(self, cycle: RequestResponseCycle) -> None:
        if self._held is not None and cycle is self.cycle and self._table.begin_early(self):
            self._start_held()

    def _start_held(self) -> None:
        if self._held is not None:
            app, self._held = self._held, None
            self._start(self.cycle, app)

    def _start(self, cycle: RequestResponseCycle, app: Any) -> None:

        async def begin(scope: Any, receive: Any, send: Any) -> None:
            if len(cycle.body) > LARGE_BYTES:
                await asyncio.sleep(0)  # lets the event loop notice a client that has disconnected
            if not cycle.disconnected:
                is_old = scope["http_version"] == "1.0"
                await app(scope, receive, unchunked(cycle, send) if is_old else send)

        super()._start_asgi_task(cycle, begin)

    def check(self, elapsed: float) -> None:
        """End the connection if its client has left, or is too slow to send or to read."""
        if self._open and self.flow.read_paused and has_left(self.transport):
            self.transport.abort()
        elif self._is_unread(elapsed):
            self._note("unread", "the client does not read what it asked for")
            self.transport.abort()
        elif self._is_leaving:
            self._waited_s += elapsed
            if self._waited_s > LINGER_S:
                self.transport.abort()
        elif self._is_deaf:
            return  # the connection ends after the outstanding replies
        elif self._expects is _Expects.BODY:
            if not self.flow.read_paused:  # otherwise the application is slow, not the client
                self._waited_s += elapsed
                self._check_body()
        elif not self._open:
            self._waited_s += elapsed
            self._check_head()

    def evict(self) -> None:
        """End this connection, which waits for its client, to make room for another connection."""
        if self._expects is _Expects.START:
            self.transport.close()
        else:
            message = "the connection was closed for another one, since it was slow and all are in use"
            self._refuse(503, "too_many_connections", message)

    def _drain(self, num_bytes: int) -> None:
        """Drop a piece of a body whose request is already answered, and pause reading to limit the rate."""
        self.transport.pause_reading()
        self.loop.call_later(num_bytes / DRAINED_BYTES_PER_S, self._go_on_reading)

    def _go_on_reading(self) -> None:
        if not self.transport.is_closing() and not self.flow.read_paused:
            self.transport.resume_reading()

    def _check_head(self) -> None:
        limits = self._limits
        if self._expects is _Expects.HEAD:
            if self._waited_s > limits.header_timeout_s:
                message = f"the headers were not complete after {limits.header_timeout_s:g} s"
                self._refuse(408, "request_timeout", message)
            return
        is_new = self.cycle is None
        if self._waited_s > (limits.header_timeout_s if is_new else limits.idle_timeout_s):
            self.transport.close()

    def _check_body(self) -> None:
        if self._waited_s > self._limits.body_timeout_s + self._body_bytes / MIN_BYTES_PER_S:
            message = f"of the body {self._body_bytes} bytes had come after {self._waited_s:.0f} s"
            self._refuse(408, "request_timeout", message)

    def _is_unread(self, elapsed: float) -> bool:
        """Return whether the client has read its replies too slowly for too long."""
        size = self.transport.get_write_buffer_size()
        if not size or (self._open and not self.flow.write_paused):
            self._unread_s = 0.0
            return False
        if not self._unread_s:
            self._unread_bytes = size
        self._unread_s += elapsed
        sent = max(0, self._unread_bytes - size)
        return self._unread_s > self._limits.send_timeout_s + sent / MIN_BYTES_PER_S

    def _head_too_large(self) -> RefusedError:
        limit = self._limits.header_bytes
        return RefusedError(431, "headers_too_large", f"the request's headers have more than {limit} bytes")

    def _stop(self, refusal: RefusedError) -> RefusedError:
        """Store a refusal, and return it for a parser callback to raise.

        It is stored because the parser replaces exceptions of callbacks with its own error.
        """
        self._refusal = refusal
        return refusal

    def _refuse(self, status: int, code: str, message: str, logged: str = "") -> None:
        """Refuse the request that is being received, and end the connection.

        If earlier requests of the connection are still being answered, no reply is sent. If the head was
        refused, the connection ends after the replies to the earlier requests. If the body was refused, the
        connection ends at once.
        """
        self._note(code, logged or message)
        self._is_deaf = True
        if self._expects is not _Expects.BODY:
            if self._open:
                self.cycle.keep_alive = False
                return
        elif len(self._open) > 1 or self.cycle.response_started:
            self.transport.abort()
            return
        else:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(refusal_reply(status, code, message))
        self._is_leaving, self._waited_s = True, 0.0
        if self._table.leave(self) and self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()

    def _note(self, kind: str, problem: str) -> None:
        """Log why a connection is ended, unless a line of this kind was logged a moment ago."""
        left_out = self._notes.due(kind, self.loop.time())
        if left_out is not None:
            more = f" ({left_out} more like it)" if left_out else ""
            address = f"{self.client[0]}:{self.client[1]}" if self.client else "a client"
            self.logger.warning("%s: %s%s", address, problem, more)


def protocol_factory(limits: ConnectionLimits, table: ConnectionTable) -> Callable[..., LimitedProtocol]:
    """Return the factory that creates a server's connections."""
    return partial(LimitedProtocol, limits=limits, table=table, notes=Occasional())
