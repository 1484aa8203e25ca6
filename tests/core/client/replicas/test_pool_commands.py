"""What an administrator asks a pool, all its engines are asked; what one refuses, none does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from llmfw.core.base.control import (
    Answer,
    CacheView,
    Command,
    FlushCache,
    GetMemory,
    GetPolicy,
    GetTrace,
    LogLevelInfo,
    MemoryInfo,
    PinInfo,
    PinPrefix,
    PolicyInfo,
    PrefixInfo,
    RequestTrace,
    SetLogLevel,
    SetPolicy,
    UnpinPrefix,
    ViewCache,
)
from llmfw.core.base.errors import NotFoundError, RequestError
from llmfw.core.base.request import Request
from llmfw.core.base.steps_view import ViewSteps

from ....doubles.echo_administration import EchoAdministration
from ....doubles.echo_engine import WAIT
from ....doubles.mortal_life import MortalPool
from .test_pool import request, run, until


@pytest.fixture
async def mortal() -> AsyncIterator[MortalPool]:
    mortal = MortalPool(may_restart=asyncio.Event())
    await mortal.pool.start()
    yield mortal
    await mortal.pool.close()


class Refusing(EchoAdministration):
    """Refuses one command, and carries out the others."""

    refused: Command

    def answer(self, command: Command) -> Answer:
        if command == self.refused:
            raise RequestError("not here")
        return super().answer(command)


class Slow(EchoAdministration):
    """Answers one kind of command only once it may.

    Attributes:
        has_begun: set when the command has come.
        may_answer: set by the test.
    """

    slow: type[Command]

    def __init__(self, requests: Sequence[Request]) -> None:
        super().__init__(requests)
        self.has_begun = threading.Event()
        self.may_answer = threading.Event()

    def answer(self, command: Command) -> Answer:
        if isinstance(command, self.slow):
            self.has_begun.set()
            assert self.may_answer.wait(20)
        return super().answer(command)


def slow_down(mortal: MortalPool, index: int, command: type[Command]) -> Slow:
    administration = Slow(mortal.engine(index).requests)
    administration.slow = command
    mortal.engine(index).administration = administration
    return administration


def refuse(mortal: MortalPool, index: int, command: Command) -> None:
    administration = Refusing(mortal.engine(index).requests)
    administration.refused = command
    mortal.engine(index).administration = administration


async def policies(mortal: MortalPool) -> list[str]:
    found = []
    for replica in mortal.pool._replicas:
        answer = await replica.client.control(GetPolicy())
        assert isinstance(answer, PolicyInfo)
        found.append(answer.name)
    return found


async def test_a_policy_is_set_on_all_engines(mortal: MortalPool) -> None:
    answer = await mortal.pool.control(SetPolicy("lpm"))
    assert isinstance(answer, PolicyInfo)
    assert answer.name == "lpm"
    assert await policies(mortal) == ["lpm", "lpm"]


async def test_a_refused_policy_changes_no_engine(mortal: MortalPool) -> None:
    refuse(mortal, 1, SetPolicy("lpm"))
    with pytest.raises(RequestError, match="not here"):
        await mortal.pool.control(SetPolicy("lpm"))
    assert await policies(mortal) == ["fcfs", "fcfs"]


async def test_a_policy_reaches_engines_that_return(mortal: MortalPool) -> None:
    mortal.life(1).die()
    await mortal.pool.control(SetPolicy("lpm"))
    assert mortal._may_restart is not None
    mortal._may_restart.set()
    await until(lambda: mortal.pool.replicas[1].outage is None)
    assert await policies(mortal) == ["lpm", "lpm"]


@pytest.mark.parametrize("is_down_before", [False, True])
async def test_a_policy_reaches_engines_that_return_meanwhile(
    mortal: MortalPool, is_down_before: bool
) -> None:
    """While the others are still setting it: they restarted with the policy before it."""
    others = slow_down(mortal, 0, SetPolicy)
    if is_down_before:
        mortal.life(1).die()
    setting = asyncio.create_task(mortal.pool.control(SetPolicy("lpm")))
    await until(others.has_begun.is_set)
    if not is_down_before:
        mortal.life(1).die()
    assert mortal._may_restart is not None
    mortal._may_restart.set()
    await until(lambda: len(mortal.lives[1]) == 2 and mortal.pool.replicas[1].outage is None)
    others.may_answer.set()
    await setting
    assert await policies(mortal) == ["lpm", "lpm"]


async def test_the_log_level_is_set_on_all(mortal: MortalPool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert await mortal.pool.control(SetLogLevel("info")) == LogLevelInfo("info")
    assert [replica.client.settings._log_level for replica in mortal.pool._replicas] == [
        SetLogLevel("info")
    ] * 2


async def test_cache_views_add_up(mortal: MortalPool) -> None:
    for index in range(2):
        mortal.engine(index).administration.prefixes = [
            PrefixInfo(10 * index + i, 1, 0, 1, 0.0, 0, False) for i in range(3)
        ]
    view = await mortal.pool.control(ViewCache(4))
    assert isinstance(view, CacheView)
    assert (view.num_tokens, view.num_hit, view.eviction) == (18, 6, "lru")
    assert [(each.num_tokens, each.replica) for each in view.prefixes] == [(0, 0), (10, 1), (1, 0), (11, 1)]


async def test_a_pin_is_held_by_all_engines(mortal: MortalPool) -> None:
    pin = await mortal.pool.control(PinPrefix([1, 2, 3], 60.0))
    assert isinstance(pin, PinInfo)
    view = await mortal.pool.control(ViewCache())
    assert isinstance(view, CacheView)
    assert [each.id for each in view.pins] == [pin.id]
    assert [len(mortal.engine(index).administration._pins) for index in range(2)] == [1, 1]
    gone = await mortal.pool.control(UnpinPrefix(pin.id))
    assert isinstance(gone, PinInfo)
    assert (gone.id, gone.expires_in_s) == (pin.id, 0.0)
    assert [len(mortal.engine(index).administration._pins) for index in range(2)] == [0, 0]
    with pytest.raises(NotFoundError):
        await mortal.pool.control(UnpinPrefix(pin.id))


async def test_a_refused_pin_stays_nowhere(mortal: MortalPool) -> None:
    refuse(mortal, 1, PinPrefix([1, 2, 3], 60.0))
    with pytest.raises(RequestError, match="not here"):
        await mortal.pool.control(PinPrefix([1, 2, 3], 60.0))
    assert len(mortal.engine(0).administration._pins) == 0


async def test_a_pin_outlives_one_engine(mortal: MortalPool) -> None:
    pin = await mortal.pool.control(PinPrefix([1, 2, 3], 60.0))
    assert isinstance(pin, PinInfo)
    mortal.life(0).die()
    view = await mortal.pool.control(ViewCache())
    assert isinstance(view, CacheView)
    assert [each.id for each in view.pins] == [pin.id]
    assert isinstance(await mortal.pool.control(UnpinPrefix(pin.id)), PinInfo)


async def test_a_trace_comes_from_its_engine(mortal: MortalPool) -> None:
    for i in range(4):
        await run(mortal, request(f"r{i}", 1))
    for i in range(4):
        trace = await mortal.pool.control(GetTrace(f"r{i}"))
        assert isinstance(trace, RequestTrace)
        assert trace.id == f"r{i}"
    with pytest.raises(NotFoundError):
        await mortal.pool.control(GetTrace("unknown"))


async def test_memory_adds_up(mortal: MortalPool) -> None:
    memory = await mortal.pool.control(GetMemory())
    assert isinstance(memory, MemoryInfo)
    assert memory.host_bytes > 2**20


async def test_a_busy_engine_keeps_all_caches(mortal: MortalPool) -> None:
    waiting = asyncio.create_task(run(mortal, request("a", WAIT)))
    await until(lambda: sum(mortal.num_requests()) == 1)
    with pytest.raises(RequestError, match="0 requests run and 1 wait"):
        await mortal.pool.control(FlushCache(only_idle=True))
    assert not any(mortal.engine(index).administration.commands for index in range(2))
    waiting.cancel()


async def test_steps_need_one_engine(mortal: MortalPool) -> None:
    with pytest.raises(RequestError, match="2 engines, and the batch step by step needs a server with one"):
        await mortal.pool.control(ViewSteps())
