"""A drain waits for requests, for batches to be handed back, and for work in the background; not for ever."""

from __future__ import annotations

import asyncio

import pytest

from llmfw.api.lifecycle.drain import Drain


class Job:
    """Work that ends on request."""

    def __init__(self) -> None:
        self.is_handed_back = False
        self.ended = asyncio.Event()

    async def hand_back(self) -> None:
        self.is_handed_back = True

    async def finished(self) -> None:
        await self.ended.wait()

    async def end(self) -> None:
        self.ended.set()


async def test_an_idle_server_drains_at_once() -> None:
    drain = Drain(60)
    assert drain.refusal is None
    assert drain.begin()
    assert await drain.run()


async def test_new_requests_are_refused_once_begun() -> None:
    drain = Drain(60)
    drain.begin()
    assert drain.refusal is not None
    assert (drain.refusal.code, drain.refusal.retry_after_s) == ("draining", 5.0)
    assert not drain.begin()


async def test_a_drain_waits_for_open_requests_and_work() -> None:
    drain, job = Drain(60), Job()
    drain.add(job)
    with drain.request():
        drain.begin()
        running = asyncio.create_task(drain.run())
        await asyncio.sleep(0.01)
        assert job.is_handed_back
        assert drain.num_open == 1
    await asyncio.sleep(0.01)
    assert not running.done()
    job.ended.set()
    assert await running


class BrokenJob(Job):
    """Work whose store fails."""

    async def hand_back(self) -> None:
        raise RuntimeError("no such table")


async def test_a_failing_step_cuts_no_request(caplog: pytest.LogCaptureFixture) -> None:
    drain, job = Drain(60), BrokenJob()
    drain.add(job)
    job.ended.set()
    with drain.request():
        drain.begin()
        running = asyncio.create_task(drain.run())
        await asyncio.sleep(0.01)
        assert not running.done()
    assert await running
    assert "no such table" in caplog.text


@pytest.mark.parametrize("hurried", [True, False])
async def test_a_drain_ends_early_if_told_or_late(hurried: bool) -> None:
    drain, job = Drain(60 if hurried else 0.01), Job()
    drain.add(job)
    with drain.request():
        drain.begin()
        if hurried:
            drain.hurry()
        assert not await drain.run()
    assert job.ended.is_set()
