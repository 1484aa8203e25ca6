"""Server-sent events: the frames of a stream, and the response that sends them.

Knows nothing of what the frames hold.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping

import msgspec
from litestar.types import Receive, Scope, Send

from llmfw.core.base.request import Wait

from .errors import body_of, log_unexpected

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
KEEP_ALIVE_S = 15.0

_encoder = msgspec.json.Encoder()


def frame(payload: bytes) -> bytes:
    """Return one event. JSON has no line breaks, so one `data:` line always does."""
    return b"data: %b\n\n" % payload


def comment_on(wait: Wait | None) -> bytes:
    """Return the comment that tells of a choice's waiting; nothing if it does not wait."""
    if wait is None:
        return b""
    if wait.num_ahead == 0 and wait.seconds == 0:
        return b": admitted, the prompt is being computed\n\n"
    about = "" if wait.seconds is None else f", about {wait.seconds:.1f} s"
    return f": waiting, {wait.num_ahead} ahead{about}\n\n".encode()


def error_frame(error: Exception) -> bytes:
    """Return the event that tells a client of a failure in mid-stream."""
    return frame(_encoder.encode(body_of(error)))


class EventStreamResponse:
    """An ASGI response that sends frames as they come, ends when the client goes, and keeps quiet streams alive.

    Args:
        frames: is closed at the end, also when the client goes; an error of it becomes an error frame. Empty ones are
            not sent.
        headers: in addition to those of any event stream.
        first: a frame that was taken from them already.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        headers: Mapping[str, str] | None = None,
        first: bytes = b"",
    ) -> None:
        self._frames = frames
        self._headers = headers or {}
        self._first = first
        self._quiet = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; returns at its end or soon after the client went."""
        await send({"type": "http.response.start", "status": 200, "headers": self._encoded_headers()})
        sending = asyncio.create_task(self._send_all(send))
        watching = asyncio.create_task(self._watch(receive, send))
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, watching):
                task.cancel()
            await asyncio.gather(sending, watching, return_exceptions=True)

    async def _send_all(self, send: Send) -> None:
        async with contextlib.aclosing(self._frames) as frames:
            try:
                if self._first:
                    await send({"type": "http.response.body", "body": self._first, "more_body": True})
                async for data in frames:
                    if not data:
                        continue
                    self._quiet = False
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
                log_unexpected(error, "a stream")
                data = error_frame(error) + DONE
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, receive: Receive, send: Send) -> None:
        """Return when the client goes; meanwhile send a comment whenever nothing else was sent for a while."""
        going = asyncio.ensure_future(receive())
        try:
            while True:
                done, _ = await asyncio.wait({going}, timeout=KEEP_ALIVE_S)
                if done:
                    if going.result()["type"] == "http.disconnect":
                        return
                    going = asyncio.ensure_future(receive())
                elif self._quiet:
                    await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
                self._quiet = True
        finally:
            going.cancel()

    def _encoded_headers(self) -> list[tuple[bytes, bytes]]:
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            **self._headers,
        }
        return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
