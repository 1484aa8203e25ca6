"""Server-sent events: the frames of a stream, and the response that sends them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
from litestar.types import HTTPResponseBodyEvent, Receive, Scope, Send

from llmfw.api.background.tasks import end, self_cancelled
from llmfw.core.base.request import Wait

from .errors import body_of, log_unexpected

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
KEEP_ALIVE_S = 15.0

_encoder = msgspec.json.Encoder()


def frame(payload: bytes) -> bytes:
    """Return the frame of one event.

    The payload is JSON without line breaks, so one `data:` line is enough.
    """
    return b"data: %b\n\n" % payload


def comment_on(wait: Wait | None) -> bytes:
    """Return a comment frame that reports a choice's wait; b"" if there is nothing to report."""
    if wait is None:
        return b""
    if wait.num_ahead == 0 and wait.seconds == 0:
        return b": admitted, the prompt is being computed\n\n"
    about = "" if wait.seconds is None else f", about {wait.seconds:.1f} s"
    return f": waiting, {wait.num_ahead} ahead{about}\n\n".encode()


def error_frame(error: Exception) -> bytes:
    """Return the frame that reports a failure in mid-stream."""
    return frame(_encoder.encode(body_of(error)))


def is_event_stream(message: Any) -> bool:
    """Return whether the head of a reply announces server-sent events, in plain text."""
    headers = {bytes(name).lower(): bytes(value) for name, value in message["headers"]}
    return (
        headers.get(b"content-type", b"").startswith(b"text/event-stream")
        and b"content-encoding" not in headers
        and b"content-length" not in headers
    )


STRAIGHT = "llmfw.straight"
"""Key of a scope: a function without arguments that returns the shortest `send` for the events of a stream, once the
reply has started. It leaves out Litestar's layers and others that look only at the start of a reply."""


_LAST: HTTPResponseBodyEvent = {"type": "http.response.body", "body": b"", "more_body": False}


async def _send_error(error: Exception, send: Send) -> None:
    """Log an error of a stream, and send it as the last events."""
    log_unexpected(error, "a stream")
    await send({"type": "http.response.body", "body": error_frame(error) + DONE, "more_body": True})


class EventStreamResponse:
    """An ASGI response that sends frames as they arrive, and comments to keep a quiet stream alive.

    Args:
        frames: iterator of frames; closed at the end, even if the client disconnects. An exception of the
            iterator becomes an error frame; empty frames are not sent.
        headers: headers to send in addition to those of every event stream.
        first: frame already taken from `frames`, sent first.
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
        """Send the stream; return at its end, or soon after the client has disconnected."""
        await send({"type": "http.response.start", "status": 200, "headers": self._encoded_headers()})
        straight: Send = scope[STRAIGHT]() if STRAIGHT in scope else send  # type: ignore[literal-required]
        sending = asyncio.create_task(self._send_all(send, straight))
        watching = asyncio.create_task(self._watch(receive, straight))
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
            if sending.cancelled():  # by code in the task, such as a plugin's parser
                await _send_error(self_cancelled(), straight)
                await send(_LAST)
        finally:
            for task in (sending, watching):
                task.cancel()
            await end(sending)
            await end(watching)

    async def _send_all(self, send: Send, straight: Send) -> None:
        async with contextlib.aclosing(self._frames) as frames:
            try:
                if self._first:
                    await straight({"type": "http.response.body", "body": self._first, "more_body": True})
                async for data in frames:
                    if not data:
                        continue
                    self._quiet = False
                    await straight({"type": "http.response.body", "body": data, "more_body": True})
            except Exception as error:  # noqa: BLE001 - every failure is reported to the client
                await _send_error(error, straight)
        await send(_LAST)

    async def _watch(self, receive: Receive, send: Send) -> None:
        """Wait until the client disconnects.

        Meanwhile, send a comment after every KEEP_ALIVE_S without frames.
        """
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
