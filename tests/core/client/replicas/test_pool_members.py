"""Engines of a pool are drained, added and removed while requests run."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import AsyncIterator

import msgspec
import pytest

from llmfw.core.base.control import GetPolicy, ListAdapters, LoadAdapter, PolicyInfo, SetPolicy, Sleep, Wake
from llmfw.core.base.errors import ConflictError, EngineError, NotFoundError, RequestError
from llmfw.core.base.replica_commands import (
    AddReplica,
    DrainReplica,
    ListReplicas,
    RemoveReplica,
    ReplicaInfo,
    ReplicaList,
    UndrainReplica,
)
from llmfw.core.client.request_progress import Continuations
from llmfw.core.client.restarts import RestartPolicy

from ....doubles.echo_engine import EOS, WAIT
from ....doubles.mortal_life import MortalPool
from ....length import of_length
from .test_pool import request, run, until
from .test_pool_commands import Slow, slow_down


@pytest.fixture
async def mortal() -> AsyncIterator[MortalPool]:
    mortal = MortalPool(delay=0.002, most=3, continuations=Continuations(0))
    await mortal.pool.start()
    yield mortal
    await mortal.pool.close()


async def states(mortal: MortalPool) -> dict[int, str]:
    found = await mortal.pool.control(ListReplicas())
    assert isinstance(found, ReplicaList)
    return {each.index: each.state for each in found.replicas}


async def test_a_drained_engine_gets_no_requests(mortal: MortalPool) -> None:
    """What it has runs to its end."""
    long = asyncio.create_task(run(mortal, request("long", *range(100), replica=0)))
    await until(lambda: mortal.num_requests()[0] == 1)
    await mortal.pool.control(DrainReplica(0))
    assert await states(mortal) == {0: "draining", 1: "running"}
    for i in range(5):
        await run(mortal, request(f"r{i}", 1))
    assert mortal.num_requests() == [1, 5, 0]
    assert await long == [*range(100), EOS]
    assert await states(mortal) == {0: "drained", 1: "running"}
    await mortal.pool.control(UndrainReplica(0))
    for i in range(4):
        await run(mortal, request(f"s{i}", 1))
    assert mortal.num_requests()[0] > 1


async def test_the_list_says_what_is_queued(mortal: MortalPool) -> None:
    tasks = [asyncio.create_task(run(mortal, request("a", *([WAIT] * 40), replica=1)))]
    tasks.append(asyncio.create_task(run(mortal, request("b", *range(200), replica=1))))
    await until(lambda: mortal.pool._replicas[1].load.num_running == 1)
    mortal.life(1).mirror.tokens_per_s = 80.0
    found = await mortal.pool.control(ListReplicas())
    assert isinstance(found, ReplicaList)
    assert found.max_replicas == 3
    busy = found.replicas[1]
    assert (busy.num_waiting, busy.num_running, busy.queued_tokens, busy.queued_s) == (1, 1, 40, 0.5)
    assert found.replicas[0] == ReplicaInfo(index=0, state="running")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_last_engine_stays(mortal: MortalPool) -> None:
    await mortal.pool.control(DrainReplica(1))
    for command in (DrainReplica(0), RemoveReplica(0, 1.0)):
        with pytest.raises(ConflictError, match="no other engine takes requests"):
            await mortal.pool.control(command)
    await mortal.pool.control(DrainReplica(1))  # again, without an effect
    assert await run(mortal, request("a", 1)) == [1, EOS]


async def test_unknown_engines_are_refused(mortal: MortalPool) -> None:
    for command in (DrainReplica(2), UndrainReplica(-1), RemoveReplica(7, 1.0)):
        with pytest.raises(NotFoundError, match="the engines are 0, 1"):
            await mortal.pool.control(command)


async def test_engines_come_and_go(mortal: MortalPool) -> None:
    """With the lowest free number, and up to the maximum; the description follows."""
    added = await mortal.pool.control(AddReplica())
    assert isinstance(added, ReplicaInfo)
    assert (added.index, added.state) == (2, "running")
    assert mortal.pool.info.max_total_tokens == 3 * 4096
    with pytest.raises(ConflictError, match="larger --max-replicas"):
        await mortal.pool.control(AddReplica())
    for i in range(6):
        await run(mortal, request(f"r{i}", 1))
    assert mortal.num_requests() == [2, 2, 2]
    removed = await mortal.pool.control(RemoveReplica(1, 5.0))
    assert isinstance(removed, ReplicaInfo)
    assert (removed.index, removed.state) == (1, "removed")
    assert [state.number for state in mortal.pool.replicas] == [0, 2]
    assert mortal.pool.info.max_total_tokens == 2 * 4096
    assert mortal.life(1).failure is not None
    again = await mortal.pool.control(AddReplica())
    assert isinstance(again, ReplicaInfo)
    assert again.index == 1
    assert await run(mortal, request("a", 1, replica=1)) == [1, EOS]


async def test_an_added_engine_has_the_current_policy(mortal: MortalPool) -> None:
    await mortal.pool.control(SetPolicy("lpm"))
    await mortal.pool.control(AddReplica())
    policy = await mortal.pool._replicas[2].client.control(GetPolicy())
    assert isinstance(policy, PolicyInfo)
    assert policy.name == "lpm"


async def test_settings_that_change_reach_an_added_engine(mortal: MortalPool) -> None:
    """Also while it is loading the adapters of the others."""
    new_client, slow = mortal._new_client, list[Slow]()

    def watched(index: int) -> object:
        client = new_client(index)
        slow.append(slow_down(mortal, index, ListAdapters))
        return client

    assert mortal.pool._members._growth is not None
    object.__setattr__(mortal.pool._members._growth, "new_client", watched)
    await mortal.pool.control(LoadAdapter("a", "/a"))
    adding = asyncio.create_task(mortal.pool.control(AddReplica()))
    await until(lambda: slow and slow[0].has_begun.is_set())
    changes = [
        asyncio.create_task(mortal.pool.control(command))
        for command in (SetPolicy("lpm"), LoadAdapter("b", "/b"))
    ]
    await asyncio.sleep(0.05)
    slow[0].may_answer.set()
    await asyncio.gather(adding, *changes)
    policy = await mortal.pool._replicas[2].client.control(GetPolicy())
    assert isinstance(policy, PolicyInfo)
    assert policy.name == "lpm"
    assert [*mortal.engine(2).administration._adapters] == ["a", "b"]


async def test_a_different_engine_is_not_added(mortal: MortalPool) -> None:
    new_client = mortal._new_client

    def other(index: int) -> object:
        client = new_client(index)
        engine = mortal.engine(index)
        engine.info = msgspec.structs.replace(engine.info, max_model_len=7)
        return client

    assert mortal.pool._members._growth is not None
    object.__setattr__(mortal.pool._members._growth, "new_client", other)
    with pytest.raises(EngineError, match=r"engine 2 could not be added: .* max_model_len is 512 and 7"):
        await mortal.pool.control(AddReplica())
    assert await states(mortal) == {0: "running", 1: "running"}
    assert await run(mortal, request("a", 1)) == [1, EOS]


async def test_removal_hands_long_requests_over(mortal: MortalPool) -> None:
    """Those that still run after the time have the same text on another engine."""
    long = asyncio.create_task(run(mortal, request("long", *range(200))))
    await until(lambda: sum(each.load.num_running for each in mortal.pool._replicas) == 1)
    index = mortal.num_requests().index(1)
    await mortal.pool.control(RemoveReplica(index, 0.05))
    assert await long == [*range(200), EOS]
    assert mortal.num_requests()[:2] == [1, 1]
    assert mortal.pool.num_continued == 1


async def test_removal_without_continuations_waits_or_fails() -> None:
    mortal = MortalPool(delay=0.002, most=2)
    await mortal.pool.start()
    long = asyncio.create_task(run(mortal, request("long", *range(100), replica=0)))
    await until(lambda: mortal.pool._replicas[0].load.num_running == 1)
    with pytest.raises(ConflictError, match="1 requests of engine 0 still run"):
        await mortal.pool.control(RemoveReplica(0, 0.02))
    assert await states(mortal) == {0: "running", 1: "running"}
    await mortal.pool.control(RemoveReplica(0, 10.0))
    assert await long == [*range(100), EOS]
    assert await states(mortal) == {1: "running"}
    await mortal.pool.close()


async def test_undraining_stops_a_removal(mortal: MortalPool) -> None:
    long = asyncio.create_task(run(mortal, request("long", WAIT, replica=0)))
    await until(lambda: mortal.num_requests()[0] == 1)
    removing = asyncio.create_task(mortal.pool.control(RemoveReplica(0, 20.0)))
    await asyncio.sleep(0.01)
    await mortal.pool.control(UndrainReplica(0))
    with pytest.raises(ConflictError, match="undrained meanwhile"):
        await removing
    long.cancel()
    await asyncio.gather(long, return_exceptions=True)


async def test_sleeping_engines_cannot_be_changed(mortal: MortalPool) -> None:
    await mortal.pool.control(Sleep(5.0))
    assert await states(mortal) == {0: "asleep", 1: "asleep"}
    for command in (AddReplica(), DrainReplica(0), RemoveReplica(0, 1.0)):
        with pytest.raises(ConflictError, match="the engines sleep"):
            await mortal.pool.control(command)
    await mortal.pool.control(Wake())
    await mortal.pool.control(AddReplica())
    assert await states(mortal) == {0: "running", 1: "running", 2: "running"}


async def test_drained_engines_help_if_all_others_are_lost() -> None:
    mortal = MortalPool(policy=RestartPolicy(max_per_hour=0))
    await mortal.pool.start()
    await mortal.pool.control(DrainReplica(0))
    mortal.life(1).die()
    await until(lambda: mortal.pool._replicas[1].client.failure is not None)
    assert await asyncio.wait_for(run(mortal, request("a", 1)), 10) == [1, EOS]
    with pytest.raises(ConflictError):
        await mortal.pool.control(RemoveReplica(0, 1.0))
    await mortal.pool.close()


async def test_the_loss_counts_engines_that_are_there() -> None:
    mortal = MortalPool(policy=RestartPolicy(max_per_hour=0), most=3)
    await mortal.pool.start()
    losing = asyncio.create_task(mortal.pool.wait_lost())
    await mortal.pool.control(AddReplica())
    await mortal.pool.control(RemoveReplica(0, 1.0))
    mortal.life(1).die()
    await asyncio.sleep(0.05)
    assert not losing.done()
    mortal.life(2).die()
    assert "restarted 0 times" in str(await asyncio.wait_for(losing, 10))
    await mortal.pool.close()


async def test_a_change_logs_no_lost_error(caplog: pytest.LogCaptureFixture) -> None:
    """What waited for the engines before is dropped without a trace."""
    mortal = MortalPool(most=3)
    await mortal.pool.start()
    losing = asyncio.create_task(mortal.pool.wait_lost())
    await asyncio.sleep(0.01)
    await mortal.pool.control(AddReplica())
    await asyncio.sleep(0.01)
    losing.cancel()
    await asyncio.wait({losing})
    await mortal.pool.close()
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_one_engine_has_nothing_to_choose_from(mortal: MortalPool) -> None:
    with pytest.raises(RequestError, match="one engine; start it with --replicas"):
        await mortal.pool._replicas[0].client.control(ListReplicas())


@pytest.mark.parametrize("seed", range(of_length(3, 20)))
async def test_random_changes_lose_no_request(seed: int) -> None:
    """Engines die, are drained, removed and added under load; every text is whole."""
    rng = random.Random(seed)
    mortal = MortalPool(count=2, most=4, delay=0.001, continuations=Continuations(0))
    await mortal.pool.start()
    is_over = asyncio.Event()

    async def client(number: int) -> None:
        for turn in range(6):
            prompt = [rng.randrange(200) for _ in range(rng.randrange(1, 40))]
            assert await run(mortal, request(f"{number}-{turn}", *prompt)) == [*prompt, EOS]

    async def administrator() -> None:
        while not is_over.is_set():
            index = rng.choice([state.number for state in mortal.pool.replicas])
            command = rng.choice(
                [
                    AddReplica(),
                    RemoveReplica(index, 0.02 * rng.random()),
                    DrainReplica(index),
                    UndrainReplica(index),
                ]
            )
            with contextlib.suppress(ConflictError, NotFoundError, EngineError):
                await mortal.pool.control(command)
            await asyncio.sleep(0.01 * rng.random())

    async def killer() -> None:
        for _ in range(2):
            await asyncio.sleep(0.1 * rng.random())
            mortal.life(rng.choice([state.number for state in mortal.pool.replicas])).die()

    others = [asyncio.create_task(administrator()), asyncio.create_task(killer())]
    async with asyncio.timeout(60):
        await asyncio.gather(*(client(number) for number in range(12)))
    is_over.set()
    async with asyncio.timeout(20):
        await asyncio.gather(*others)
    for replica in mortal.pool._replicas:
        assert (replica.load.num_requests, replica.load.queued_tokens) == (0, 0)
    assert mortal.pool._gate.num_waiting == 0
    await mortal.pool.close()
