"""All engines of a pool sleep, or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from llmfw.core.base.control import LogLevelInfo, MemoryInfo, SetLogLevel, Sleep, Wake
from llmfw.core.base.errors import ConflictError, EngineDeadError, NotReadyError
from llmfw.core.client.whole_request import whole_request

from ....doubles.echo_engine import EOS, WAIT
from ....doubles.mortal_life import MortalPool
from .test_pool import request, run, until


@pytest.fixture
async def mortal() -> AsyncIterator[MortalPool]:
    mortal = MortalPool(delay=0.002)
    await mortal.pool.start()
    yield mortal
    await mortal.pool.close()


async def test_all_engines_sleep_and_wake(mortal: MortalPool) -> None:
    assert isinstance(await mortal.pool.control(Sleep(5)), MemoryInfo)
    assert all(life._dead.is_set() for [life] in mortal.lives)
    assert mortal.pool.outage is None
    for refused in (run(mortal, request("a", 1)), mortal.pool.stats(), mortal.pool.control(Sleep(5))):
        with pytest.raises(NotReadyError, match="the engine sleeps"):
            await refused
    assert isinstance(await mortal.pool.control(Wake()), MemoryInfo)
    assert mortal.pool.refusal is None
    assert await run(mortal, request("a", 1)) == [1, EOS]
    assert [len(lives) for lives in mortal.lives] == [2, 2]
    assert mortal.pool.num_restarts == 0


async def test_sleeping_engines_get_their_log_level_later(mortal: MortalPool) -> None:
    await mortal.pool.control(Sleep(5))
    assert await mortal.pool.control(SetLogLevel("debug")) == LogLevelInfo("debug")
    await mortal.pool.control(Wake())
    assert mortal.pool.failure is None


async def test_a_busy_engine_keeps_all_awake(mortal: MortalPool) -> None:
    waiting = asyncio.create_task(run(mortal, request("a", WAIT)))
    await until(lambda: sum(mortal.num_requests()) == 1)
    with pytest.raises(ConflictError, match="1 requests still run"):
        await mortal.pool.control(Sleep(0.05))
    assert mortal.pool.refusal is None
    assert await run(mortal, request("b", 1)) == [1, EOS]
    waiting.cancel()


async def test_a_sleep_waits_for_whole_requests(mortal: MortalPool) -> None:
    """A part that goes to another engine than the part before it is no new request."""
    with whole_request():
        assert await run(mortal, request("a", 1)) == [1, EOS]
        sleeping = asyncio.create_task(mortal.pool.control(Sleep(20)))
        await asyncio.sleep(0.02)
        assert await run(mortal, request("b", 2)) == [2, EOS]
        assert not sleeping.done()
    assert isinstance(await sleeping, MemoryInfo)
    assert mortal.num_requests() == [1, 1]


async def test_deferrable_requests_wait_for_the_wake(mortal: MortalPool) -> None:
    batch = asyncio.create_task(
        run(mortal, request("a", *range(100), WAIT, deferrable=True, may_restart=True))
    )
    await until(lambda: sum(mortal.num_requests()) == 1)
    await mortal.pool.control(Sleep(5))
    await asyncio.sleep(0.05)
    assert not batch.done()
    await mortal.pool.control(Wake())
    await until(lambda: any(life[-1].engine.requests for life in mortal.lives))
    batch.cancel()


async def test_an_engine_that_dies_ends_the_sleep() -> None:
    may_restart = asyncio.Event()
    mortal = MortalPool(may_restart=may_restart)
    await mortal.pool.start()
    waiting = asyncio.create_task(run(mortal, request("a", WAIT, may_restart=True)))
    await until(lambda: sum(mortal.num_requests()) == 1)
    sleeping = asyncio.create_task(mortal.pool.control(Sleep(20)))
    await asyncio.sleep(0.02)
    mortal.life(1).die()
    waiting.cancel()
    asyncio.get_running_loop().call_later(0.2, may_restart.set)
    with pytest.raises(EngineDeadError):
        await asyncio.wait_for(sleeping, 10)
    assert mortal.pool.refusal is None
    assert await asyncio.wait_for(run(mortal, request("b", 1)), 10) == [1, EOS]
    assert isinstance(await asyncio.wait_for(mortal.pool.control(Wake()), 10), MemoryInfo)
    await mortal.pool.close()


async def test_no_engine_sleeps_while_one_restarts() -> None:
    mortal = MortalPool(may_restart=asyncio.Event())
    await mortal.pool.start()
    mortal.life(0).die()
    with pytest.raises(ConflictError, match="being restarted"):
        await mortal.pool.control(Sleep(5))
    assert await run(mortal, request("a", 1)) == [1, EOS]
    await mortal.pool.close()
