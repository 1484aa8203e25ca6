"""Frames for all that watch cost the engine one question each tenth of a second, and have no text of a request."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmfw.core import EngineDeadError, EngineStats, RequestError, StepsView, StepView, ViewSteps
from llmfw.plugins.page.feed import Feed

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import Served, byte_tokenizer, serving

ROUTES = [("page", "llmfw.plugins.page.routes:frames")]
STATS = EngineStats(num_running=1, num_waiting=2, num_used_tokens=3, num_cached_tokens=4, num_total_tokens=5)


class Client:
    """An engine's client that has made one step more at each question."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[int] = []
        self._error = error

    async def stats(self) -> EngineStats:
        return STATS

    async def control(self, command: ViewSteps) -> StepsView:
        self.asked.append(command.after)
        if self._error is not None:
            raise self._error
        return StepsView([StepView(len(self.asked), 0.0, [0], [1], [0])], [], [], [], 0)


async def take(frames: AsyncIterator[bytes], num: int) -> list[dict[str, Any]]:
    return [json.loads(await anext(frames)) for _ in range(num)]


async def test_each_frame_continues_the_last() -> None:
    client: Any = Client()
    async with aclosing(Feed().frames(client)) as frames:
        found = await take(frames, 3)
    assert client.asked == [0, 1, 2]
    assert [frame["steps"]["steps"][0][0] for frame in found] == [1, 2, 3]
    assert found[0]["stats"]["num_running"] == 1


async def test_ten_watchers_ask_no_more_than_one() -> None:
    client: Any = Client()
    feed = Feed()
    started = time.monotonic()

    async def watch() -> list[dict[str, Any]]:
        async with aclosing(feed.frames(client)) as frames:
            return await take(frames, 4)

    found = await asyncio.gather(*(watch() for _ in range(10)))
    assert len(client.asked) <= 5  # one may have come between two frames
    assert time.monotonic() - started >= 0.29
    assert len({json.dumps(each) for each in found}) <= 2


@pytest.mark.parametrize(
    ("error", "problem"),
    [(EngineDeadError("it died"), "it died"), (RequestError("this engine embeds"), None)],
)
async def test_without_steps_frames_go_on(error: Exception, problem: str | None) -> None:
    client: Any = Client(error)
    async with aclosing(Feed().frames(client)) as frames:
        found = await take(frames, 2)
    assert [frame.get("problem") for frame in found] == [problem, problem]
    assert all("steps" not in frame for frame in found)


@contextmanager
def watching(served: Served, key: str = "") -> Any:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with httpx.stream("GET", f"{served.url}/admin/page/frames", headers=headers, timeout=10) as reply:
        yield reply


@pytest.mark.parametrize(("key", "status"), [("root", 200), ("user", 403), ("", 401)])
def test_frames_are_for_administrators(tmp_path: Path, key: str, status: int) -> None:
    keys = {"admin_api_key": "root", "api_key": "user"}
    with (
        serving(EchoEngine(), byte_tokenizer(tmp_path), plugin_routes=ROUTES, **keys) as served,
        watching(served, key) as reply,
    ):
        assert reply.status_code == status


def test_frames_come_as_events(tmp_path: Path) -> None:
    with (
        serving(EchoEngine(), byte_tokenizer(tmp_path), plugin_routes=ROUTES) as served,
        watching(served) as reply,
    ):
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = reply.iter_lines()
        first = next(line for line in lines if line)
        assert json.loads(first.removeprefix("data: "))["stats"]["type"] == "stats"


CANARY = "canary-7f3a"


@pytest.mark.torch
def test_frames_have_no_texts(demo: Served) -> None:
    body = {"model": "demo", "prompt": f"{CANARY} sings", "max_tokens": 60, "ignore_eos": True}
    with watching(demo) as reply:
        lines = (line for line in reply.iter_lines() if line)
        next(lines)
        assert demo.post("/v1/completions", body).is_success
        frames = [next(lines) for _ in range(4)]
    assert any('"steps":[[' in frame for frame in frames)
    assert not any(CANARY in frame for frame in frames)
