"""Event streams: what is sent, and when they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from llmfw.api.http.sse import DONE, KEEP_ALIVE, EventStreamResponse, frame
from llmfw.core.base.errors import EngineError

Frames = AsyncGenerator[bytes, None]


async def play(frames: Frames, receive: Callable[[], Awaitable[Any]] | None = None) -> list[bytes]:
    """Send a response; return the bodies that were sent."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    response = EventStreamResponse(frames, {"x-more": "1"})
    await asyncio.wait_for(response({}, receive or asyncio.Event().wait, send), 5)  # type: ignore[arg-type]
    assert (b"x-more", b"1") in sent[0]["headers"]
    return [message["body"] for message in sent[1:]]


async def test_frames_are_sent_in_order_then_the_end() -> None:
    async def frames() -> Frames:
        yield frame(b"{}")
        yield DONE

    assert await play(frames()) == [b"data: {}\n\n", b"data: [DONE]\n\n", b""]


async def test_errors_become_frames_sdks_raise_on() -> None:
    async def frames() -> Frames:
        yield frame(b"{}")
        raise EngineError("no more")

    _, error, end = await play(frames())
    first, done = error.removesuffix(b"\n\n").split(b"\n\n")
    assert json.loads(first.removeprefix(b"data: "))["error"]["message"] == "no more"
    assert (done + b"\n\n", end) == (DONE, b"")


async def test_comments_keep_a_quiet_stream_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfw.api.http.sse.KEEP_ALIVE_S", 0.02)

    async def frames() -> Frames:
        await asyncio.sleep(0.2)
        yield DONE

    sent = await play(frames())
    assert sent[0] == KEEP_ALIVE
    assert sent[-2:] == [DONE, b""]


async def test_a_disconnected_client_closes_the_frames() -> None:
    closed = asyncio.Event()

    async def frames() -> Frames:
        try:
            yield frame(b"{}")
            await asyncio.sleep(60)
        finally:
            closed.set()

    async def receive() -> dict[str, str]:
        await asyncio.sleep(0.05)
        return {"type": "http.disconnect"}

    assert await play(frames(), receive) == [b"data: {}\n\n"]
    assert closed.is_set()
