"""An engine that sleeps has no process; requests are refused or wait, and none is lost."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from llmfw.core.base.control import (
    GetPolicy,
    LogLevelInfo,
    MemoryInfo,
    PolicyInfo,
    SetLogLevel,
    SetPolicy,
    Sleep,
    Wake,
)
from llmfw.core.base.errors import ConflictError, NotReadyError, RequestError
from llmfw.core.client.inproc import InprocEngineClient
from llmfw.core.client.supervisor import SupervisedEngineClient
from llmfw.core.client.whole_request import whole_request

from ...doubles.echo_engine import EOS, WAIT, EchoEngine
from .test_supervisor import new_client, request, run, tokens


@pytest.fixture
async def client() -> AsyncIterator[SupervisedEngineClient]:
    client = new_client()
    await client.start()
    yield client
    await client.close()


async def test_a_sleeping_engine_has_no_process(client: SupervisedEngineClient) -> None:
    pid = client.pid
    memory = await client.control(Sleep(5))
    assert isinstance(memory, MemoryInfo)
    assert memory.host_bytes > 2**20
    assert not Path(f"/proc/{pid}").exists()
    assert client.outage is None  # it needs no restart
    for refused in (run(client, request("a", 1)), client.stats(), client.control(Sleep(5))):
        with pytest.raises(NotReadyError, match="the engine sleeps") as caught:
            await refused
        assert caught.value.code == "asleep"


async def test_a_woken_engine_is_the_same(client: SupervisedEngineClient) -> None:
    await client.control(SetPolicy("fcfs"))
    before = await run(client, request("a", 1, 2))
    await client.control(Sleep(5))
    assert isinstance(await client.control(Wake()), MemoryInfo)
    assert client.refusal is None
    assert tokens(await run(client, request("a", 1, 2))) == tokens(before) == [1, 2, EOS]
    policy = await client.control(GetPolicy())
    assert isinstance(policy, PolicyInfo)
    assert policy.name == "fcfs"
    assert client.num_restarts == 0


async def test_a_sleeping_engine_gets_its_log_level_later(client: SupervisedEngineClient) -> None:
    await client.control(Sleep(5))
    assert await client.control(SetLogLevel("debug")) == LogLevelInfo("debug")
    assert client.settings._log_level == SetLogLevel("debug")
    await client.control(Wake())
    assert client.failure is None


async def test_a_sleep_waits_for_live_requests(client: SupervisedEngineClient) -> None:
    running = asyncio.create_task(run(client, request("a", *range(50))))
    await asyncio.sleep(0.1)
    sleeping = asyncio.create_task(client.control(Sleep(20)))
    await asyncio.sleep(0.05)
    with pytest.raises(NotReadyError):
        await run(client, request("b", 1))
    assert tokens(await running) == [*range(50), EOS]
    await sleeping


async def test_a_sleep_waits_for_later_parts(client: SupervisedEngineClient) -> None:
    """A client's request that sends its parts one after another is not cut between two of them."""
    with whole_request():
        await run(client, request("a", 1))
        sleeping = asyncio.create_task(client.control(Sleep(20)), context=contextvars.Context())
        await asyncio.sleep(0.05)
        with pytest.raises(NotReadyError):
            await asyncio.create_task(run(client, request("b", 1)), context=contextvars.Context())
        assert tokens(await asyncio.create_task(run(client, request("c", 1)))) == [1, EOS]
        assert not sleeping.done()
    await sleeping


async def test_a_sleep_names_whole_requests(client: SupervisedEngineClient) -> None:
    with whole_request():
        running = [asyncio.create_task(run(client, request(id, WAIT))) for id in "ab"]
        await asyncio.sleep(0.1)
        with pytest.raises(ConflictError, match=r"1 requests still run after 0\.1 s"):
            await client.control(Sleep(0.1))
        for task in running:
            task.cancel()


async def test_work_after_a_reply_is_refused(client: SupervisedEngineClient) -> None:
    with whole_request():
        await run(client, request("a", 1))
        go_on = asyncio.Event()

        async def after_the_reply() -> None:
            await go_on.wait()
            await run(client, request("b", 1))

        late = asyncio.create_task(after_the_reply())
    await client.control(Sleep(5))
    go_on.set()
    with pytest.raises(NotReadyError):
        await late


async def test_a_sleep_gives_up_and_changes_nothing(client: SupervisedEngineClient) -> None:
    running = asyncio.create_task(run(client, request("a", WAIT)))
    await asyncio.sleep(0.1)
    with pytest.raises(ConflictError, match=r"1 requests still run after 0\.1 s"):
        await client.control(Sleep(0.1))
    assert tokens(await run(client, request("b", 1))) == [1, EOS]
    running.cancel()


async def test_deferrable_requests_wait_for_the_waking(client: SupervisedEngineClient) -> None:
    def deferrable(id: str) -> asyncio.Task[list]:  # type: ignore[type-arg]
        wanted = msgspec.structs.replace(request(id, *range(60), may_restart=True), deferrable=True)
        return asyncio.create_task(run(client, wanted))

    running = deferrable("a")
    await asyncio.sleep(0.2)
    await client.control(Sleep(5))
    waiting = deferrable("b")
    await asyncio.sleep(0.1)
    assert not running.done()
    assert not waiting.done()
    await client.control(Wake())
    async with asyncio.timeout(20):
        assert tokens(await running) == tokens(await waiting) == [*range(60), EOS]


async def test_a_sleeping_engine_can_be_closed() -> None:
    client = new_client()
    await client.start()
    await client.control(Sleep(5))
    await client.close()


async def test_an_engine_in_this_process_cannot_sleep() -> None:
    client = InprocEngineClient(EchoEngine())  # type: ignore[arg-type]
    await client.start()
    with pytest.raises(RequestError, match="no process of its own"):
        await client.control(Sleep(1))
    await client.close()
