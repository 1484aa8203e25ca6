"""Turns for work that holds up the event loop: half of the time, cheap work first, no endless wait."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest

from llmfw.api.server import pace as module
from llmfw.api.server.pace import Pace
from llmfw.core.base.errors import OverloadedError


async def test_work_leaves_half_the_time_to_others():
    pace = Pace()
    started = time.perf_counter()
    await asyncio.gather(*(pace.turn(0.02) for _ in range(4)))
    assert time.perf_counter() - started >= 0.119


async def test_overrunning_work_leaves_equal_pauses():
    pace, begun = Pace(), []

    async def work() -> None:
        await pace.turn(0.001)
        await asyncio.sleep(0)
        begun.append(time.perf_counter())
        time.sleep(0.05)  # noqa: ASYNC251 - holds up the loop, as decoding does

    await asyncio.gather(work(), work(), work())
    assert all(after - before >= 0.099 for before, after in pairwise(begun))


async def test_cheap_work_overtakes_expensive_work():
    pace, order = Pace(), []

    async def work(cost_s: float) -> None:
        await pace.turn(cost_s)
        order.append(cost_s)

    await asyncio.gather(*map(work, (0.001, 0.02, 0.01, 0.02, 0.0003, 0.01)))
    assert order == [0.001, 0.0003, 0.01, 0.01, 0.02, 0.02]


async def test_work_that_would_wait_too_long_is_refused():
    pace = Pace()
    await pace.turn(100)
    with pytest.raises(OverloadedError):
        await pace.turn(0.01)


async def test_expensive_work_does_not_delay_cheap_work():
    pace = Pace()
    await pace.turn(0.001)
    waiting = [asyncio.create_task(pace.turn(0.95)) for _ in range(8)]
    await asyncio.sleep(0)
    await pace.turn(0.001)
    assert [task.done() and task.exception() is None for task in waiting] == [False] * 8
    assert sum(isinstance(task.exception(), OverloadedError) for task in waiting if task.done()) == 2
    for task in waiting:
        task.cancel()


async def test_work_overtaken_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_WAIT_S", 0.1)
    pace = Pace()
    await pace.turn(0.001)
    expensive = asyncio.create_task(pace.turn(0.04))

    async def cheap() -> None:
        while not expensive.done():
            await pace.turn(0.01)

    await asyncio.gather(cheap(), cheap(), cheap())
    with pytest.raises(OverloadedError):
        await expensive


async def test_cancelled_work_takes_no_slot():
    pace = Pace()
    await pace.turn(0.001)
    gone = asyncio.create_task(pace.turn(4))
    await asyncio.sleep(0)
    gone.cancel()
    started = time.perf_counter()
    await pace.turn(4)
    assert time.perf_counter() - started < 1
