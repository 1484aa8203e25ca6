"""Other weights take the place of an engine's: requests wait, none mixes two versions, and a failed load changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from llmfw.core.base.control import Sleep
from llmfw.core.base.errors import (
    ConflictError,
    EngineDeadError,
    EngineError,
    EngineRestartingError,
    ModelError,
    NotReadyError,
    RequestError,
)
from llmfw.core.base.request import Request, SamplingParams, TokenEvent
from llmfw.core.base.weights_command import LoadWeights, WeightsInfo
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.client.replicas.pool import EnginePool
from llmfw.core.client.request_progress import Continuations
from llmfw.core.client.supervisor import SupervisedEngineClient
from llmfw.core.client.weights_swap import ServedWeights, WeightsSwap
from llmfw.core.client.whole_request import whole_request

from ...doubles.echo_engine import EOS, WAIT, EchoEngine
from ...doubles.mortal_life import MortalLife

LONG = (*range(100), WAIT)


class Life(MortalLife):
    """Serves a checkpoint whose name is its version; "bad" cannot be loaded, and "wide" has a larger vocabulary."""

    def __init__(self, path: str) -> None:
        engine = EchoEngine(delay=0.001)
        engine.info = msgspec.structs.replace(
            engine.info, model=path, weight_version=path, vocab_size=engine.info.vocab_size + (path == "wide")
        )
        super().__init__(engine)
        self.path = path

    async def start(self) -> None:
        if self.path.startswith("bad"):
            raise ModelError("the weights are damaged")
        await super().start()


class Rig:
    """A client, and the lives that it has started."""

    def __init__(self, count: int = 1) -> None:
        self.lives: list[Life] = []
        self.bad: set[tuple[int, str]] = set()  # number of an engine, and what it cannot load

        def new_client(index: int, continuations: Continuations | None) -> SupervisedEngineClient:
            def life_of(path: str) -> ProcessEngineClient:
                life = Life("bad" if (index, path) in self.bad else path)
                self.lives.append(life)
                return life  # type: ignore[return-value]

            swap = WeightsSwap(life_of, "a")
            return SupervisedEngineClient(swap.new_life, continuations=continuations, weights=swap)

        if count == 1:
            self.client: SupervisedEngineClient | EnginePool = new_client(0, Continuations(0))
        else:
            clients = [new_client(index, None) for index in range(count)]
            self.client = EnginePool(clients, continuations=Continuations(0), served=ServedWeights("a"))

    async def run(self, request: Request) -> list[TokenEvent]:
        return [event async for event in self.client.generate(request)]

    async def load(self, path: str, *, aborts: bool = False, timeout_s: float = 5) -> WeightsInfo:
        answer = await self.client.control(LoadWeights(path, timeout_s, aborts=aborts))
        assert isinstance(answer, WeightsInfo)
        return answer

    @property
    def served(self) -> list[str]:
        """The versions of the engines that run."""
        return [life.path for life in self.lives if not life._dead.is_set()]


@pytest.fixture(params=[1, 2])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    rig = Rig(request.param)
    await rig.client.start()
    yield rig
    await rig.client.close()


def asked(id: str, *prompt: int, deferrable: bool = False) -> Request:
    sampling = SamplingParams(max_tokens=1000)
    return Request(
        id=id, prompt=list(prompt), sampling=sampling, deferrable=deferrable, may_restart=deferrable
    )


def tokens(events: list[TokenEvent]) -> list[int]:
    return [token for event in events for token in event.token_ids]


def slowly(life: Life) -> None:
    """Let the end of a process take time, in which requests may come."""
    close = life.close

    async def later() -> None:
        await close()
        await asyncio.sleep(0.05)

    life.close = later  # type: ignore[method-assign]


async def until(condition: object) -> None:
    async with asyncio.timeout(10):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.005)


async def test_all_engines_serve_the_other_weights(rig: Rig) -> None:
    count = len(rig.served)
    answer = await rig.load("b")
    assert (answer.path, answer.version) == ("b", "b")
    assert rig.served == ["b"] * count
    assert rig.client.info.weight_version == "b"
    assert tokens(await rig.run(asked("a", 1))) == [1, EOS]
    assert (await rig.load("a")).version == "a"
    assert rig.client.num_restarts == 0
    assert rig.client.outage is None


async def test_new_requests_wait_while_old_ones_end(rig: Rig) -> None:
    old = asyncio.create_task(rig.run(asked("old", *range(100))))
    await until(lambda: any(life.engine.requests for life in rig.lives))
    loading = asyncio.create_task(rig.load("b"))
    await asyncio.sleep(0.01)
    new = asyncio.create_task(rig.run(asked("new", 7)))
    assert tokens(await old) == [*range(100), EOS]
    assert not new.done()
    await loading
    assert tokens(await new) == [7, EOS]
    ran = {request.id: life.path for life in rig.lives for request in life.engine.requests}
    assert ran == {"old": "a", "new": "b"}


async def test_requests_that_still_run_keep_the_weights(rig: Rig) -> None:
    running = asyncio.create_task(rig.run(asked("a", WAIT)))
    await until(lambda: any(life.engine.requests for life in rig.lives))
    with pytest.raises(ConflictError, match="1 requests still run"):
        await rig.load("b", timeout_s=0.05)
    assert set(rig.served) == {"a"}
    assert tokens(await rig.run(asked("b", 1))) == [1, EOS]
    running.cancel()


async def test_aborted_requests_end_with_an_error(rig: Rig) -> None:
    async def whole() -> None:
        with whole_request():
            await rig.run(asked("a", *LONG))

    async def in_parts() -> None:
        with whole_request():
            await rig.run(asked("b", 1))
            await has_loaded.wait()
            await rig.run(asked("c", 2))

    has_loaded = asyncio.Event()
    running = [asyncio.create_task(whole()), asyncio.create_task(in_parts())]
    await until(lambda: sum(len(life.engine.requests) for life in rig.lives) == 2)
    await asyncio.sleep(0.05)
    assert (await rig.load("b", aborts=True)).version == "b"
    has_loaded.set()
    for each in running:
        with pytest.raises(EngineDeadError, match=r"other weights|closed"):
            await asyncio.wait_for(each, 5)
    assert not any(life.engine.requests for life in rig.lives if life.path == "b")


async def test_deferrable_requests_start_over(rig: Rig) -> None:
    prompt = [*range(100)] * 4
    running = asyncio.create_task(rig.run(asked("a", *prompt, deferrable=True)))
    await until(lambda: any(life.engine.requests for life in rig.lives))
    await asyncio.sleep(0.05)
    await rig.load("b")
    events = await asyncio.wait_for(running, 10)
    start = max(at for at, event in enumerate(events) if event.restarted)
    assert start > 0
    assert tokens(events[start:]) == [*prompt, EOS]
    assert [
        life.engine.requests[0].output for life in rig.lives if life.path == "b" and life.engine.requests
    ] == [[]]


async def test_requests_that_start_over_mix_no_weights(rig: Rig) -> None:
    """A request that may start over is not continued by another engine's weights, though it is not deferrable."""
    prompt = [*range(100)] * 4
    request = msgspec.structs.replace(asked("a", *prompt), may_restart=True)
    running = asyncio.create_task(rig.run(request))
    await until(lambda: any(life.engine.requests for life in rig.lives))
    await asyncio.sleep(0.05)
    for life in rig.lives:
        slowly(life)
    await rig.load("b", aborts=True)
    events = await asyncio.wait_for(running, 10)
    start = max(at for at, event in enumerate(events) if event.restarted)
    assert tokens(events[start:]) == [*prompt, EOS]
    ran = [(life.path, request.output) for life in rig.lives for request in life.engine.requests]
    assert [each for each in ran if each[0] == "b"] == [("b", [])]


@pytest.mark.parametrize("path", ["bad", "wide"])
async def test_a_failed_load_keeps_the_weights(rig: Rig, path: str) -> None:
    count = len(rig.served)
    with pytest.raises(EngineError, match=r"damaged|another one than before"):
        await rig.load(path)
    assert rig.served == ["a"] * count
    assert rig.client.info.weight_version == "a"
    assert tokens(await rig.run(asked("a", 1))) == [1, EOS]
    assert (await rig.load("b")).version == "b"


async def test_one_engine_that_fails_brings_all_back() -> None:
    rig = Rig(2)
    await rig.client.start()
    rig.bad = {(1, "b")}
    with pytest.raises(EngineError, match="damaged"):
        await rig.load("b")
    assert rig.served == ["a", "a"]
    assert [life.path for life in rig.lives].count("b") == 1
    assert tokens(await rig.run(asked("a", 1))) == [1, EOS]
    await rig.client.close()


async def test_the_old_process_ends_as_an_outage() -> None:
    """Until the new one is ready, too; nothing is sent to the one that ends."""
    rig = Rig()
    await rig.client.start()
    seen: list[str | None] = []
    close = rig.lives[0].close

    async def slow_close() -> None:
        seen.append(rig.client.outage)
        with pytest.raises(EngineRestartingError, match="loads other weights"):
            await rig.client.stats()
        await close()

    rig.lives[0].close = slow_close  # type: ignore[method-assign]
    await rig.load("b")
    assert set(seen) == {"the engine loads other weights"}
    assert rig.client.outage is None
    await rig.client.close()


async def test_an_engine_that_dies_has_the_new_weights(rig: Rig) -> None:
    await rig.load("b")
    rig.lives[-1].die()
    await until(lambda: rig.client.num_restarts == 1 and rig.client.outage is None)
    assert set(rig.served) == {"b"}
    assert tokens(await rig.run(asked("a", 1))) == [1, EOS]


async def test_sleeping_engines_load_no_weights(rig: Rig) -> None:
    await rig.client.control(Sleep(5))
    with pytest.raises(NotReadyError, match="sleeps"):
        await rig.load("b")


async def test_without_a_folder_weights_are_fixed() -> None:
    client = SupervisedEngineClient(lambda: Life("a"))  # type: ignore[arg-type, return-value]
    await client.start()
    with pytest.raises(RequestError, match="--weights-from"):
        await client.control(LoadWeights("b"))
    await client.close()
