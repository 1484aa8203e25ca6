"""The middleware `gzip`: compresses replies that come as one piece, such as JSON. Streams pass unchanged."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable, Sequence
from typing import Annotated, ClassVar

import msgspec

from llmfw.core import ASGIApplication, ASGIMessage, ASGIReceive, ASGIScope, ASGISend, HTTPMiddleware

IN_THREAD_BYTES = 64 * 1024
"""Bodies of at least this size are compressed in a thread, so that other requests do not wait."""

_GZIP = 16 + zlib.MAX_WBITS  # zlib's way to ask for gzip's header and trailer
_COMPRESSIBLE = re.compile(rb"(?:text/|application/(?:json|.*\+json|javascript|xml|openmetrics-text))")
_WITHOUT_BODY = (204, 206, 304)

Header = tuple[bytes, bytes]


class Gzip(HTTPMiddleware):
    """Compresses replies of text and JSON that have their whole body in one message.

    Streams of events, files and replies that are encoded already pass unchanged, message by message.
    """

    skips_events: ClassVar[bool] = True

    class Options(HTTPMiddleware.Options, frozen=True):
        """
        Attributes:
            min_bytes: smallest body to compress, in bytes.
            level: effort, from 1 (fast) to 9 (small).
        """

        min_bytes: Annotated[int, msgspec.Meta(ge=1)] = 1024
        level: Annotated[int, msgspec.Meta(ge=1, le=9)] = 5

    options: Options
    in_thread_bytes = IN_THREAD_BYTES

    async def handle(
        self, app: ASGIApplication, scope: ASGIScope, receive: ASGIReceive, send: ASGISend
    ) -> None:
        coding = self.coding_of(scope["headers"]) if scope["method"] != "HEAD" else ""
        start: ASGIMessage | None = None

        async def send_compressed(message: ASGIMessage) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_compressible(message):
                message["headers"] = [*message["headers"], (b"vary", b"accept-encoding")]
                if coding:
                    start = message  # sent with the first part of the body, which follows at once
                    return
            elif start is not None:
                held, start = start, None
                body, is_whole = message.get("body", b""), not message.get("more_body", False)
                if is_whole and len(body) >= self.options.min_bytes:
                    body = await self._compressed(body, coding)
                    held["headers"] = _encoded(held["headers"], coding, len(body))
                    message = {**message, "body": body}
                await send(held)
            await send(message)

        # A plain function, not a coroutine, because each event of a stream passes through it.
        def pass_on(message: ASGIMessage) -> Awaitable[None]:
            is_later = start is None and message["type"] != "http.response.start"
            return send(message) if is_later else send_compressed(message)

        await app(scope, receive, pass_on)
        if start is not None:
            await send(start)  # the application has sent no body; the server reports this error

    def coding_of(self, headers: Sequence[Header]) -> str:
        """Return the coding in which a client with these headers gets replies; "": as they are."""
        return "gzip" if accepted_weight(headers, "gzip") else ""

    def encode(self, body: bytes, coding: str) -> bytes:
        """Return a body in a coding that `coding_of` has returned."""
        packer = zlib.compressobj(self.options.level, zlib.DEFLATED, _GZIP)
        return packer.compress(body) + packer.flush()

    async def _compressed(self, body: bytes, coding: str) -> bytes:
        if len(body) < self.in_thread_bytes:
            return self.encode(body, coding)
        return await asyncio.to_thread(self.encode, body, coding)


def accepted_weight(headers: Sequence[Header], coding: str) -> float:
    """Return the weight that a request gives to a coding, by its name or by `*`; 0: it is not accepted."""
    found: dict[bytes, float] = {}
    for name, value in headers:
        if name == b"accept-encoding":
            for part in value.lower().split(b","):
                named, _, weight = part.partition(b";")
                found[named.strip()] = _number(weight.strip())
    return found.get(coding.encode(), found.get(b"*", 0.0))


def _number(weight: bytes) -> float:
    """Return the number in a weight, such as b"q=0.5" or b"", which is 1; 0 if it has none from 0 to 1."""
    if not weight:
        return 1.0
    name, _, value = weight.partition(b"=")
    try:
        number = float(value) if name.strip() == b"q" else 0.0
    except ValueError:
        return 0.0
    return number if 0 <= number <= 1 else 0.0


def _is_compressible(message: ASGIMessage) -> bool:
    """Return whether `message` starts a text or JSON reply that is neither encoded nor a stream of events."""
    headers = {name.lower(): value for name, value in message["headers"]}
    kind = headers.get(b"content-type", b"").lower()
    return (
        message["status"] not in _WITHOUT_BODY
        and _COMPRESSIBLE.match(kind) is not None
        and not kind.startswith(b"text/event-stream")
        and b"content-encoding" not in headers
        and b"no-transform" not in headers.get(b"cache-control", b"")
    )


def _encoded(headers: Sequence[Header], coding: str, length: int) -> list[Header]:
    """Return the headers of a compressed reply. An entity tag becomes weak, because the bytes change."""
    kept = [
        (name, b"W/" + value if name.lower() == b"etag" and not value.startswith(b"W/") else value)
        for name, value in headers
        if name.lower() != b"content-length"
    ]
    return [*kept, (b"content-encoding", coding.encode()), (b"content-length", b"%d" % length)]
