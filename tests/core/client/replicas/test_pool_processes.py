"""A pool of real processes: one that hangs is left by its requests as soon as that is noticed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial

import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.engine_info import EngineStats
from llmfw.core.base.request import Request
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.client.replicas.pool import EnginePool
from llmfw.core.client.supervisor import SupervisedEngineClient
from llmfw.core.client.watchdog import WatchdogLimits

from ....doubles import echo_engine
from ....doubles.echo_engine import EOS, WAIT
from ....doubles.request_watch import KeepingWatch
from .test_pool import request, until

COMMAND = (sys.executable, echo_engine.__file__)


def new_pool() -> EnginePool:
    new_life = partial(ProcessEngineClient, EngineConfig(model="echo"), COMMAND, WatchdogLimits(silent_s=1.0))
    return EnginePool([SupervisedEngineClient(new_life) for _ in range(2)])


async def run(pool: EnginePool, wanted: Request) -> list[int]:
    return [token async for event in pool.generate(wanted) for token in event.token_ids]


async def running(pool: EnginePool) -> list[int]:
    return [each.num_running if each is not None else -1 for each in await pool.replica_stats()]


async def test_a_hanging_engine_is_left_by_its_requests() -> None:
    pool = new_pool()
    with pool.launched():
        await pool.start()
        waiting = [asyncio.create_task(run(pool, request(f"r{i}", WAIT))) for i in range(4)]
        await asyncio.sleep(0.2)
        assert await running(pool) == [2, 2]
        pid = pool._replicas[0].client.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        stats = await pool.stats()  # of the other one, which is not waited for in vain
        assert isinstance(stats, EngineStats)
        assert stats.num_running == 2
        await until(lambda: pool.replicas[0].outage is not None)
        await asyncio.sleep(0.2)
        assert (await running(pool))[1] == 4
        assert await run(pool, request("new", 1, 2)) == [1, 2, EOS]
        for task in waiting:
            task.cancel()
        await pool.close()


async def test_a_watch_is_not_called_for_each_token() -> None:
    pool, watch = new_pool(), KeepingWatch()
    with pool.launched():
        await pool.start()
        events = [event async for event in pool.watched(request("a", *range(1, 9)), watch)]
        await pool.close()
    assert watch.noted == [events[0], events[-1]]
    assert watch.num_tokens == 9


async def test_all_processes_end_with_the_pool() -> None:
    pool = new_pool()
    with pool.launched():
        await pool.start()
        pids = [replica.client.pid for replica in pool._replicas]
        assert await run(pool, request("a", 1)) == [1, EOS]
        await pool.close()
    for pid in pids:
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_processes_end_if_one_cannot_start() -> None:
    pool = new_pool()
    failing = partial(ProcessEngineClient, EngineConfig(model="echo"), (sys.executable, "-c", "exit(3)"))
    pool = EnginePool([pool._replicas[0].client, SupervisedEngineClient(failing)])
    with pytest.raises(Exception, match="exit code 3 while it started"), pool.launched():
        await pool.start()
    pid = pool._replicas[0].client.pid
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
