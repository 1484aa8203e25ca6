"""Several engines are one client: requests are spread, and survive the death of an engine where they can."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator

import msgspec
import pytest

from llmfw.core.base.errors import (
    CrashingRequestError,
    EngineDeadError,
    EngineError,
    EngineRestartingError,
    OverloadedError,
    RequestError,
    TenantLimitError,
)
from llmfw.core.base.request import EmbedRequest, Request, SamplingParams, TokenEvent
from llmfw.core.client.request_progress import Continuations
from llmfw.core.client.restarts import RestartPolicy

from ....doubles.echo_engine import CRASH, EOS, WAIT
from ....doubles.mortal_life import MortalPool
from ....length import of_length


def request(id: str, *prompt: int, **fields: object) -> Request:
    return Request(id=id, prompt=list(prompt), sampling=SamplingParams(max_tokens=1000), **fields)  # type: ignore[arg-type]


async def run(mortal: MortalPool, wanted: Request) -> list[int]:
    """Return what a reader has in the end that honors new starts."""
    found: list[int] = []
    async for event in mortal.pool.generate(wanted):
        found = [] if event.restarted else found + event.token_ids
    return found


async def until(condition: object) -> None:
    async with asyncio.timeout(20):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.005)


@pytest.fixture
async def mortal() -> AsyncIterator[MortalPool]:
    mortal = MortalPool(delay=0.002)
    await mortal.pool.start()
    yield mortal
    await mortal.pool.close()


@pytest.fixture
async def held() -> AsyncIterator[MortalPool]:
    """A pool whose engines do not start again before the test is over."""
    mortal = MortalPool(delay=0.002, may_restart=asyncio.Event())
    await mortal.pool.start()
    yield mortal
    await mortal.pool.close()


async def test_requests_are_spread_over_engines(mortal: MortalPool) -> None:
    tasks = [asyncio.create_task(run(mortal, request(f"r{i}", i, 7))) for i in range(20)]
    assert await asyncio.gather(*tasks) == [[i, 7, EOS] for i in range(20)]
    assert mortal.num_requests() == [10, 10]


async def test_requests_one_by_one_alternate(mortal: MortalPool) -> None:
    """An idle pool does not leave all to its first engine."""
    for i in range(6):
        await run(mortal, request(f"r{i}", 1))
    assert mortal.num_requests() == [3, 3]


async def test_an_engine_with_fewer_tokens_is_chosen(mortal: MortalPool) -> None:
    long = asyncio.create_task(run(mortal, request("long", *([WAIT] * 100))))
    await asyncio.sleep(0.02)
    for i in range(4):
        await run(mortal, request(f"r{i}", 1))
    assert sorted(mortal.num_requests()) == [1, 4]
    long.cancel()


async def test_unanswered_requests_move_at_once(held: MortalPool) -> None:
    """Not after the restart of their engine, which these engines never finish."""
    waiting = [asyncio.create_task(run(held, request(f"r{i}", WAIT))) for i in range(4)]
    await until(lambda: sum(held.num_requests()) == 4)
    held.life(0).die()
    await until(lambda: held.num_requests() == [2, 4])
    assert held.pool.outage is None
    assert [state.outage is None for state in held.pool.replicas] == [False, True]
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()


async def test_started_streams_of_others_go_on(held: MortalPool) -> None:
    streams = [held.pool.generate(request(f"r{i}", *range(100))) for i in range(2)]
    for stream in streams:
        await anext(stream)
    held.life(0).die()
    found: list[object] = []
    for stream in streams:
        try:
            found.append([event.token_ids[0] async for event in stream])
        except EngineDeadError as error:
            found.append(error)
    [whole] = [each for each in found if isinstance(each, list)]
    assert whole == [*range(1, 100), EOS]
    assert any(isinstance(each, EngineDeadError) for each in found)


async def test_restartable_streams_start_over_elsewhere(held: MortalPool) -> None:
    wanted = request("a", *range(100), may_restart=True)
    events: list[TokenEvent] = []
    async for event in held.pool.generate(wanted):
        events.append(event)
        if len(events) == 3:
            held.life(held.num_requests().index(1)).die()
    restarts = [event.restarted for event in events]
    assert restarts.count(True) == 1
    after = events[restarts.index(True) + 1 :]
    assert [token for event in after for token in event.token_ids] == [*range(100), EOS]


async def test_streams_are_continued_elsewhere() -> None:
    """From the token after the last one, on an engine that has computed none of them, and at once."""
    mortal = MortalPool(delay=0.002, may_restart=asyncio.Event(), continuations=Continuations(0))
    await mortal.pool.start()
    wanted = request("a", *range(100), logprobs=0)
    events: list[TokenEvent] = []
    async for event in mortal.pool.generate(wanted):
        events.append(event)
        if len(events) == 3:
            mortal.life(mortal.num_requests().index(1)).die()
    assert [token for event in events for token in event.token_ids] == [*range(100), EOS]
    assert not any(event.restarted for event in events)
    assert all(event.logprobs for event in events)
    assert mortal.num_requests() == [1, 1]
    assert mortal.pool.num_continued == 1
    await mortal.pool.close()


async def test_a_full_queue_lets_continued_streams_in() -> None:
    """They have been admitted once, whatever waits at the other engine."""
    mortal = MortalPool(delay=0.002, max_tenant_requests=1, continuations=Continuations(0))
    await mortal.pool.start()
    stream = mortal.pool.generate(request("a", *range(50), tenant="ann", tenant_is_key=True))
    found = (await anext(stream)).token_ids
    mortal.life(mortal.num_requests().index(1)).die()
    async for event in stream:
        found = found + event.token_ids
    assert found == [*range(50), EOS]
    await mortal.pool.close()


async def test_a_stream_that_crashes_engines_ends() -> None:
    """Also one that does so after its first token: it is not continued for ever."""
    mortal = MortalPool(delay=0.001, continuations=Continuations(0))
    await mortal.pool.start()
    others = [asyncio.create_task(run(mortal, request(f"r{i}", *range(60)))) for i in range(6)]
    found: list[int] = []

    async def read() -> None:
        """Read a stream that crashes its engine at each tenth token."""
        async for event in mortal.pool.generate(request("bad", *range(100))):
            found.extend(event.token_ids)
            if len(found) % 10 == 5:
                [its_own] = [index for index in range(2) if mortal.life(index).engine.is_running("bad")]
                mortal.life(its_own).die(outside=False)

    with pytest.raises(CrashingRequestError):
        await asyncio.wait_for(read(), 30)
    assert found == [*range(len(found))]
    assert await asyncio.gather(*others) == [[*range(60), EOS]] * 6
    assert mortal.pool.num_restarts <= 4
    await mortal.pool.close()


async def test_a_crashing_request_ends_two_engines(mortal: MortalPool) -> None:
    """The suspicion goes with the request from one engine to the next."""
    innocent = [
        asyncio.create_task(run(mortal, request(f"r{i}", *range(30), may_restart=True))) for i in range(10)
    ]
    await asyncio.sleep(0.01)
    with pytest.raises(CrashingRequestError, match="the step failed"):
        await asyncio.wait_for(run(mortal, request("bad", CRASH, may_restart=True)), 20)
    assert [await task for task in innocent] == [[*range(30), EOS]] * 10
    assert mortal.pool.num_restarts <= 2


async def test_without_any_engine_requests_wait(held: MortalPool) -> None:
    for index in range(2):
        held.life(index).die()
    assert held.pool.failure is None
    assert held.pool.outage is not None
    with pytest.raises(EngineRestartingError):
        await held.pool.stats()
    waiting = asyncio.create_task(run(held, request("a", 1, 2)))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert held._may_restart is not None
    held._may_restart.set()
    assert await asyncio.wait_for(waiting, 20) == [1, 2, EOS]


async def test_a_restarted_engine_gets_requests_again(mortal: MortalPool) -> None:
    mortal.life(0).die()
    await until(lambda: mortal.pool.num_restarts == 1 and mortal.pool.replicas[0].outage is None)
    for i in range(4):
        await run(mortal, request(f"r{i}", 1))
    assert len(mortal.engine(0).requests) == 2


async def test_the_pool_lives_on_without_lost_engines() -> None:
    mortal = MortalPool(policy=RestartPolicy(max_per_hour=0))
    await mortal.pool.start()
    losing = asyncio.create_task(mortal.pool.wait_lost())
    mortal.life(0).die()
    await until(lambda: mortal.pool.replicas[0].outage is not None)
    assert mortal.pool.failure is None
    assert await run(mortal, request("a", 1)) == [1, EOS]
    assert not losing.done()
    mortal.life(1).die()
    assert "restarted 0 times" in str(await asyncio.wait_for(losing, 20))
    with pytest.raises(EngineDeadError):
        await run(mortal, request("b", 1))
    await mortal.pool.close()


async def test_different_engines_are_refused() -> None:
    mortal = MortalPool()
    info = mortal.engine(1).info
    mortal.engine(1).info = msgspec.structs.replace(info, max_model_len=99)
    with pytest.raises(EngineError, match="max_model_len is 512 and 99"):
        await mortal.pool.start()
    await mortal.pool.close()


async def test_the_description_adds_up(mortal: MortalPool) -> None:
    assert (mortal.pool.info.max_total_tokens, mortal.pool.info.max_running_requests) == (8192, 128)
    stats = await mortal.pool.stats()
    assert stats.num_total_tokens == 8192
    assert len(await mortal.pool.replica_stats()) == 2


async def test_an_engine_that_cannot_start_ends_the_start() -> None:
    mortal = MortalPool()

    async def fail() -> None:
        raise EngineError("no memory")

    mortal.life(1).start = fail  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="no memory"):
        await mortal.pool.start()
    await mortal.pool.close()


async def test_a_request_may_name_its_engine(mortal: MortalPool) -> None:
    for i in range(3):
        await run(mortal, request(f"r{i}", 1, replica=1))
    assert mortal.num_requests() == [0, 3]
    with pytest.raises(RequestError, match="the engines are 0, 1"):
        await run(mortal, request("b", 1, replica=2))


async def test_tenants_have_one_limit_for_all_engines() -> None:
    mortal = MortalPool(max_tenant_requests=2)
    await mortal.pool.start()
    waiting = [
        asyncio.create_task(run(mortal, request(f"r{i}", WAIT, tenant="ann", tenant_is_key=True)))
        for i in range(2)
    ]
    await until(lambda: mortal.num_requests() == [1, 1])
    with pytest.raises(TenantLimitError, match="'ann' has 2 requests"):
        await run(mortal, request("c", 1, tenant="ann", tenant_is_key=True))
    assert await run(mortal, request("d", 1, tenant="bob", tenant_is_key=True)) == [1, EOS]
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert await run(mortal, request("c", 1, tenant="ann", tenant_is_key=True)) == [1, EOS]
    await mortal.pool.close()


async def test_a_full_queue_sends_requests_elsewhere(mortal: MortalPool) -> None:
    """Only if all are full, the client is told."""
    accept = mortal.engine(0).add

    def refuse(request: Request) -> None:
        raise OverloadedError("the queue is full", retry_after_s=3.0)

    mortal.engine(0).add = refuse  # type: ignore[method-assign]
    for i in range(4):
        assert await run(mortal, request(f"r{i}", 1)) == [1, EOS]
    assert mortal.num_requests() == [0, 4]
    with pytest.raises(OverloadedError):
        await run(mortal, request("named", 1, replica=0))
    mortal.engine(1).add = refuse  # type: ignore[method-assign]
    with pytest.raises(OverloadedError) as caught:
        await run(mortal, request("a", 1))
    assert caught.value.retry_after_s == 3.0
    mortal.engine(0).add = accept  # type: ignore[method-assign]
    assert await run(mortal, request("b", 1)) == [1, EOS]
    assert all(replica.load.num_running == 0 for replica in mortal.pool._replicas)


async def test_a_full_draining_engine_sends_requests_elsewhere(mortal: MortalPool) -> None:
    """The other engine is the only one left that takes requests, and has room."""
    loop, is_drained = asyncio.get_running_loop(), threading.Event()

    def drain() -> None:
        mortal.pool._members._drain(mortal.pool._replicas[0])
        is_drained.set()

    def refuse(request: Request) -> None:
        loop.call_soon_threadsafe(drain)
        assert is_drained.wait(20)
        raise OverloadedError("the queue is full", retry_after_s=3.0)

    mortal.engine(0).add = refuse  # type: ignore[method-assign]
    assert await run(mortal, request("a", 1)) == [1, EOS]
    assert mortal.num_requests() == [0, 1]


async def test_quiet_engines_get_no_new_requests(
    mortal: MortalPool, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless all are quiet: the machine may be busy."""
    caplog.set_level("INFO")
    mortal.life(0).fall_quiet(is_quiet=True)
    for i in range(4):
        await run(mortal, request(f"r{i}", 1))
    assert mortal.num_requests() == [0, 4]
    assert mortal.pool.outage is None
    mortal.life(1).fall_quiet(is_quiet=True)
    for i in range(4):
        await run(mortal, request(f"s{i}", 1))
    assert mortal.num_requests()[0] > 0
    mortal.life(0).fall_quiet(is_quiet=False)
    assert [text for text in caplog.messages if text.startswith("Engine")] == [
        "Engine 0 shows no sign of life; new requests go to other engines meanwhile",
        "Engine 1 shows no sign of life; new requests go to other engines meanwhile",
        "Engine 0 shows signs of life again",
    ]


async def test_live_requests_do_not_wait_for_deferrable_ones(mortal: MortalPool) -> None:
    """What batches have queued does not count for them."""
    batch = [
        asyncio.create_task(run(mortal, request(f"d{i}", *([WAIT] * size), deferrable=True)))
        for i, size in enumerate((500, 5))
    ]
    await until(lambda: mortal.num_requests() == [1, 1])
    loads = [replica.load for replica in mortal.pool._replicas]
    views = [replica.view(0, False) for replica in mortal.pool._replicas]
    assert [view.queued_tokens for view in views] == [0, 0]
    views = [replica.view(0, True) for replica in mortal.pool._replicas]
    assert [view.queued_tokens for view in views] == [500, 5]
    for task in batch:
        task.cancel()
    await asyncio.gather(*batch, return_exceptions=True)
    assert [(load.queued_tokens, load.deferrable_tokens) for load in loads] == [(0, 0), (0, 0)]


async def test_an_id_runs_once(mortal: MortalPool) -> None:
    waiting = asyncio.create_task(run(mortal, request("a", WAIT)))
    await asyncio.sleep(0)
    with pytest.raises(RequestError, match="runs already"):
        await run(mortal, request("a", 1))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await run(mortal, request("a", 1)) == [1, EOS]


async def test_embeddings_are_routed(mortal: MortalPool) -> None:
    with pytest.raises(RequestError, match="task is 'generate'"):
        await mortal.pool.embed(EmbedRequest(id="e", prompts=[[1]]))


@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize("seed", range(of_length(3, 20)))
async def test_random_deaths_lose_no_request(seed: int, continues: bool) -> None:
    """Readers that honor new starts get every answer whole, and the pool forgets all that has ended.

    If requests are continued, nobody has to start over.
    """
    rng = random.Random(seed)
    continuations = Continuations(0) if continues else None
    mortal = MortalPool(count=rng.choice([2, 3, 5]), delay=0.001, continuations=continuations)
    await mortal.pool.start()

    async def client(number: int) -> None:
        for turn in range(6):
            prompt = [rng.randrange(200) for _ in range(rng.randrange(1, 40))]
            wanted = request(
                f"{number}-{turn}", *prompt, may_restart=not continues, deferrable=rng.random() < 0.2
            )
            if rng.random() < 0.2:
                stream = mortal.pool.generate(wanted)
                await anext(stream)
                await stream.aclose()
            else:
                assert await run(mortal, wanted) == [*prompt, EOS]

    async def killer() -> None:
        for _ in range(3):  # a fourth death in a row would blame a request that was there each time
            await asyncio.sleep(0.1 * rng.random())
            mortal.life(rng.randrange(len(mortal.lives))).die()

    killing = asyncio.create_task(killer())
    async with asyncio.timeout(60):
        await asyncio.gather(*(client(number) for number in range(12)))
    await killing
    for replica in mortal.pool._replicas:
        load = replica.load
        assert (load.num_waiting, load.num_running, load.queued_tokens) == (0, 0, 0)
    assert not mortal.pool._ids
    assert not mortal.pool._open
    assert mortal.pool._gate.num_waiting == 0
    await mortal.pool.close()
