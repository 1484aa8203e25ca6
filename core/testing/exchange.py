"""Exchanges one HTTP request and its reply with middleware."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from llmfw.core.interfaces.middleware import (
    ASGIApplication,
    ASGIMessage,
    ASGIReceive,
    ASGIScope,
    ASGISend,
    HTTPMiddleware,
)
from llmfw.core.plugin.reply_rules import ReplyRules

TIMEOUT_S = 5.0
JSON = (b"content-type", b"application/json")
EVENTS = (b"content-type", b"text/event-stream")


@dataclass
class Reply:
    """The output of the middleware.

    Attributes:
        messages: the messages of the reply.
        path: path that the application received; None: the application was not called.
        body_read: bytes that the application has read.
    """

    messages: list[ASGIMessage] = field(default_factory=list)
    path: str | None = None
    body_read: bytes = b""

    @property
    def status(self) -> int:
        """Status of the reply."""
        return int(self.messages[0]["status"])

    @property
    def body(self) -> bytes:
        """Body of the reply, decompressed if needed."""
        body = b"".join(bytes(message.get("body", b"")) for message in self.messages[1:])
        return (
            zlib.decompress(body, 47) if self.header(b"content-encoding") in (b"gzip", b"deflate") else body
        )

    def header(self, name: bytes) -> bytes:
        """Return a header's first value; b"" if the reply has none."""
        return next(
            (bytes(value) for given, value in self.messages[0]["headers"] if given.lower() == name), b""
        )


def exchange(
    middleware: HTTPMiddleware,
    *,
    method: str = "POST",
    path: str = "/v1/chat/completions",
    headers: Sequence[tuple[bytes, bytes]] = (),
    body: Sequence[bytes] = (b'{"model":', b'"m"}'),
    status: int = 200,
    reply: Sequence[bytes] = (b'{"object": "reply"}',),
    reply_headers: Sequence[tuple[bytes, bytes]] = (JSON,),
    app: ASGIApplication | None = None,
) -> Reply:
    """Pass one request through middleware, in an event loop of its own. Checks that the reply is valid.

    Args:
        headers, body: headers and body of the request; the body as a list of the parts that arrive.
        status, reply_headers, reply: status, headers and body of the application's reply; a reply in one part
            has a content-length.
        app: application to use; None: an application that reads the request and sends this reply.
    """
    made = Application(body, status, reply, reply_headers)
    run_in_loop(lambda: made.ask(middleware, request_scope(method, path, headers), app))
    return made.reply


def run_in_loop(work: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine function on a new event loop, within TIMEOUT_S."""

    async def timed() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await work()

    asyncio.run(timed())


def request_scope(
    method: str = "POST", path: str = "/v1/chat/completions", headers: Sequence[tuple[bytes, bytes]] = ()
) -> ASGIScope:
    """Return the scope of a request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": list(headers),
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 30_000),
        "state": {},
    }


class Application:
    """An application with one reply, and the client that asks it.

    Args:
        body: the request's body, as the parts that arrive.
        status, reply, reply_headers: status, body and headers of the reply; a reply in one part gets a
            content-length.

    Attributes:
        reply: the messages that the client has received.
    """

    def __init__(
        self,
        body: Sequence[bytes],
        status: int,
        reply: Sequence[bytes],
        reply_headers: Sequence[tuple[bytes, bytes]],
    ) -> None:
        self.reply = Reply()
        self._unread = list(body) or [b""]
        self._status, self._parts = status, list(reply) or [b""]
        self._headers = list(reply_headers)
        if len(self._parts) == 1:
            self._headers.append((b"content-length", b"%d" % len(self._parts[0])))

    async def ask(
        self, middleware: HTTPMiddleware, scope: ASGIScope, app: ASGIApplication | None = None
    ) -> None:
        """Pass a request through the middleware."""
        rules = ReplyRules(scope["method"])

        async def send(message: ASGIMessage) -> None:
            rules.check(message)
            self.reply.messages.append(message)
            await asyncio.sleep(0)

        await middleware.handle(app or self._answer, scope, self._receive, send)
        rules.check_end()

    async def _receive(self) -> ASGIMessage:
        await asyncio.sleep(0)
        if not self._unread:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._unread.pop(0), "more_body": bool(self._unread)}

    async def _answer(self, scope: ASGIScope, receive: ASGIReceive, send: ASGISend) -> None:
        self.reply.path = scope["path"]
        more = True
        while more:
            message = await receive()
            self.reply.body_read += message.get("body", b"")
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": self._status, "headers": list(self._headers)})
        for left, part in zip(range(len(self._parts) - 1, -1, -1), self._parts, strict=True):
            await send({"type": "http.response.body", "body": part, "more_body": left > 0})
