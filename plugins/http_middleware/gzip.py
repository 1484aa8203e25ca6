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

    async def handle(
        self, app: ASGIApplication, scope: ASGIScope, receive: ASGIReceive, send: ASGISend
    ) -> None:
        is_wanted = scope["method"] != "HEAD" and accepts_gzip(scope["headers"])
        start: ASGIMessage | None = None

        async def send_compressed(message: ASGIMessage) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_compressible(message):
                message["headers"] = [*message["headers"], (b"vary", b"accept-encoding")]
                if is_wanted:
                    start = message  # sent with the first part of the body, which follows at once
                    return
            elif start is not None:
                held, start = start, None
                body, is_whole = message.get("body", b""), not message.get("more_body", False)
                if is_whole and len(body) >= self.options.min_bytes:
                    body = await self._compressed(body)
                    held["headers"] = _for_gzip(held["headers"], len(body))
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

    async def _compressed(self, body: bytes) -> bytes:
        if len(body) < IN_THREAD_BYTES:
            return _gzipped(body, self.options.level)
        return await asyncio.to_thread(_gzipped, body, self.options.level)


def accepts_gzip(headers: Sequence[Header]) -> bool:
    """Return whether a request's headers accept gzip: by name or by `*`, and not with `q=0`."""
    found: dict[bytes, bool] = {}
    for name, value in headers:
        if name == b"accept-encoding":
            for part in value.lower().split(b","):
                coding, _, weight = part.partition(b";")
                found[coding.strip()] = _is_positive(weight.strip())
    return found.get(b"gzip", found.get(b"*", False))


def _is_positive(weight: bytes) -> bool:
    """Return whether a weight, such as b"q=0.5" or b"", is more than 0."""
    if not weight:
        return True
    name, _, value = weight.partition(b"=")
    try:
        return name.strip() == b"q" and float(value) > 0
    except ValueError:
        return False


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


def _for_gzip(headers: Sequence[Header], length: int) -> list[Header]:
    """Return the headers of a compressed reply. An entity tag becomes weak, because the bytes change."""
    kept = [
        (name, b"W/" + value if name.lower() == b"etag" and not value.startswith(b"W/") else value)
        for name, value in headers
        if name.lower() != b"content-length"
    ]
    return [*kept, (b"content-encoding", b"gzip"), (b"content-length", b"%d" % length)]


def _gzipped(body: bytes, level: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
    return packer.compress(body) + packer.flush()
