"""The work of a request ends with its client, and what it held is freed."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from litestar.exceptions import HTTPException

from llmfw.api.background.tasks import SelfCancelledError
from llmfw.api.routes import respond
from llmfw.api.routes.respond import while_connected


class Body:
    """Stands for a large body; unlike bytes it has weak references."""


async def never() -> Any:
    await asyncio.Event().wait()


async def answer(body: Body) -> None:
    raise ValueError(f"{body} is refused")


async def refuse() -> weakref.ref[Body]:
    body = Body()
    with pytest.raises(ValueError, match="is refused"):
        await while_connected(never, answer(body))
    return weakref.ref(body)


def test_a_refused_body_needs_no_garbage_collector() -> None:
    gc.disable()
    try:
        assert asyncio.run(refuse())() is None
    finally:
        gc.enable()


async def refuse_a_start(*, streams: bool) -> weakref.ref[Body]:
    body = Body()
    with pytest.raises(ValueError, match="is refused"):
        await respond.answer(never, answer(body), reply=unused, stream=unused, streams=streams)
    return weakref.ref(body)


def unused(started: None) -> Any:
    raise AssertionError("the generation has not started")


@pytest.mark.parametrize("streams", [True, False])
def test_a_refused_start_frees_its_body(streams: bool) -> None:
    gc.disable()
    try:
        assert asyncio.run(refuse_a_start(streams=streams))() is None
    finally:
        gc.enable()


class Work:
    """Work that never ends by itself; `has_ended` says whether it was cancelled, and has cleaned up since."""

    def __init__(self) -> None:
        self.has_begun, self.has_ended = asyncio.Event(), False

    async def run(self) -> None:
        try:
            self.has_begun.set()
            await never()
        finally:
            await asyncio.sleep(0)
            self.has_ended = True


@pytest.mark.parametrize("error", [None, OSError("the connection is lost")])
async def test_work_ends_when_its_client_leaves(error: Exception | None) -> None:
    work = Work()

    async def leave() -> Any:
        await work.has_begun.wait()
        if error is not None:
            raise error
        return {"type": "http.disconnect"}

    with pytest.raises(HTTPException, match="the client closed the request") as caught:
        await while_connected(leave, work.run())
    assert caught.value.status_code == 499
    assert work.has_ended


async def test_a_failure_after_the_client_left_is_none() -> None:
    async def leave() -> Any:
        await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def fail() -> None:
        try:
            await never()
        finally:
            raise ValueError("cannot clean up")

    with pytest.raises(HTTPException, match="the client closed the request"):
        await while_connected(leave, fail())


async def test_a_cancelled_request_ends_its_work() -> None:
    work = Work()
    request = asyncio.create_task(while_connected(never, work.run()))
    await work.has_begun.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert work.has_ended


async def test_work_that_cancels_itself_is_blamed() -> None:
    async def give_up() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await never()

    with pytest.raises(SelfCancelledError):
        await while_connected(never, give_up())


async def test_a_reply_waits_for_the_end_of_receive() -> None:
    ended = False

    async def receive() -> Any:
        nonlocal ended
        try:
            await never()
        finally:
            await asyncio.sleep(0)
            ended = True

    async def work() -> str:
        await asyncio.sleep(0)  # so that `receive` has begun
        return "reply"

    assert await while_connected(receive, work()) == "reply"
    assert ended
