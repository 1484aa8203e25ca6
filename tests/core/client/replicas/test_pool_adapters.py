"""All engines of a pool have the same adapters, or an adapter is loaded on none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

import numpy as np
import pytest

from llmfw.core.base.control import (
    AdapterCommand,
    AdapterInfo,
    AdapterList,
    ListAdapters,
    LoadAdapter,
    UnloadAdapter,
)
from llmfw.core.base.errors import ConflictError, EngineDeadError, ModelNotFoundError
from llmfw.core.base.replica_commands import AddReplica
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.client.replicas.request_prefixes import prompt_prefixes
from llmfw.core.client.request_progress import Continuations
from llmfw.core.engine.admission.adapter_table import AdapterTable
from llmfw.core.schedule.cache.prefix_hash import block_hashes

from ....doubles.echo_administration import EchoAdministration
from ....doubles.echo_engine import EOS
from ....doubles.mortal_life import MortalPool
from .test_pool import request, until
from .test_pool_commands import slow_down


class Loading(EchoAdministration):
    """Loads each adapter by its second answer, as an engine does.

    Args:
        fails: paths that cannot be loaded here.
    """

    def __init__(self, fails: Collection[str] = ()) -> None:
        super().__init__([])
        self.found: list[AdapterInfo] = []
        self._fails = fails
        self._num_loads = 0

    @property
    def ready(self) -> dict[str, str]:
        return {each.name: each.path for each in self.found if each.state == "ready"}

    def _change_adapters(self, command: AdapterCommand) -> AdapterList:
        if isinstance(command, LoadAdapter):
            if command.path == "refused" and "refused" in self._fails:
                raise ConflictError("this engine has no room for adapters")
            self._num_loads += 1
            self.found.append(AdapterInfo(command.name, command.path, self._num_loads, "loading"))
            return AdapterList(list(self.found), 4, 16)
        if isinstance(command, UnloadAdapter):
            if command.name not in self.ready:
                raise ModelNotFoundError("there is no such adapter")
            self.found = [each for each in self.found if each.name != command.name]
        answer = AdapterList(list(self.found), 4, 16)
        for each in [each for each in self.found if each.state == "loading"]:
            self.found.remove(each)
            is_wrong = each.path in self._fails
            if not is_wrong:
                self.found = [
                    other for other in self.found if other.name != each.name or other.state != "ready"
                ]
            self.found.append(
                AdapterInfo(
                    each.name,
                    each.path,
                    each.version,
                    "failed" if is_wrong else "ready",
                    digest=f"digest of {each.path}",
                    error="it does not fit" if is_wrong else "",
                )
            )
        return answer


@pytest.fixture
async def mortal() -> AsyncIterator[MortalPool]:
    mortal = MortalPool(
        count=2, most=3, delay=0.002, may_restart=asyncio.Event(), continuations=Continuations(0)
    )
    mortal.engine(0).administration = Loading(fails=["bad", "refused"])
    mortal.engine(1).administration = Loading()
    await mortal.pool.start()
    yield mortal
    await mortal.pool.close()


def ready(mortal: MortalPool) -> list[dict[str, str]]:
    return [mortal.engine(index).administration.ready for index in range(2)]  # type: ignore[attr-defined]


async def ask(mortal: MortalPool, command: AdapterCommand) -> dict[str, str]:
    """Return the state of each adapter in the answer."""
    found = await mortal.pool.control(command)
    assert isinstance(found, AdapterList)
    return {f"{each.name}={each.path}": each.state for each in found.adapters}


async def test_an_adapter_is_loaded_on_all(mortal: MortalPool) -> None:
    assert await ask(mortal, LoadAdapter("a", "good")) == {"a=good": "ready"}
    assert ready(mortal) == [{"a": "good"}] * 2
    assert mortal.pool._commands.adapters.digests == {"a": "digest of good"}
    assert await ask(mortal, LoadAdapter("a", "better")) == {"a=better": "ready"}
    found = await mortal.pool.control(LoadAdapter("b", "good"))
    assert isinstance(found, AdapterList)
    assert [(each.name, each.version) for each in found.adapters] == [("a", 2), ("b", 3)]
    assert (found.max_adapters, found.max_rank) == (4, 16)
    assert await ask(mortal, UnloadAdapter("a")) == {"b=good": "ready"}
    assert ready(mortal) == [{"b": "good"}] * 2


async def test_what_one_engine_cannot_load_none_has(mortal: MortalPool) -> None:
    assert await ask(mortal, LoadAdapter("a", "bad")) == {"a=bad": "failed"}
    assert ready(mortal) == [{}, {}]
    await ask(mortal, LoadAdapter("a", "good"))
    found = await mortal.pool.control(LoadAdapter("a", "bad"))
    assert isinstance(found, AdapterList)
    assert [(each.version, each.state, each.error) for each in found.adapters] == [
        (2, "ready", ""),
        (1, "failed", "it does not fit"),
        (3, "failed", "it does not fit"),
    ]
    assert ready(mortal) == [{"a": "good"}] * 2


async def test_what_one_engine_refuses_none_has(mortal: MortalPool) -> None:
    with pytest.raises(ConflictError, match="no room for adapters"):
        await mortal.pool.control(LoadAdapter("a", "refused"))
    assert ready(mortal) == [{}, {}]
    with pytest.raises(ModelNotFoundError):
        await mortal.pool.control(UnloadAdapter("a"))
    assert await ask(mortal, ListAdapters()) == {}


async def test_a_restarted_engine_gets_what_was_loaded_meanwhile(mortal: MortalPool) -> None:
    mortal.life(0).die()
    await until(lambda: len(mortal.lives[0]) == 2)
    await ask(mortal, LoadAdapter("a", "good"))
    assert mortal._may_restart is not None
    mortal._may_restart.set()
    await until(lambda: mortal.pool.replicas[0].outage is None)
    assert await ask(mortal, ListAdapters()) in ({"a=good": "ready"}, {"a=good": "loading"})
    names = [each.name for each in mortal.engine(0).administration._adapters.values()]
    assert names == ["a"]


@pytest.mark.parametrize("command", [LoadAdapter("b", "good"), UnloadAdapter("a")])
async def test_adapters_reach_engines_that_return_meanwhile(command: AdapterCommand) -> None:
    """While the others still carry out the command: they restarted with the adapters before it."""
    mortal = MortalPool(may_restart=asyncio.Event())
    await mortal.pool.start()
    await ask(mortal, LoadAdapter("a", "good"))
    others = slow_down(mortal, 0, type(command))
    others._adapters = dict(mortal.engine(1).administration._adapters)
    mortal.life(1).die()
    asking = asyncio.create_task(ask(mortal, command))
    await until(others.has_begun.is_set)
    assert mortal._may_restart is not None
    mortal._may_restart.set()
    await until(lambda: mortal.pool.replicas[1].outage is None)
    others.may_answer.set()
    await asking
    expected = {"a", "b"} if isinstance(command, LoadAdapter) else set()
    assert [set(mortal.engine(index).administration._adapters) for index in range(2)] == [expected] * 2
    assert set((await ask(mortal, ListAdapters())).values()) <= {"ready"}
    await mortal.pool.close()


async def test_an_added_engine_gets_all_adapters(mortal: MortalPool) -> None:
    await ask(mortal, LoadAdapter("a", "good"))
    assert mortal._may_restart is not None
    mortal._may_restart.set()
    await mortal.pool.control(AddReplica())
    assert list(mortal.engine(2).administration._adapters) == ["a"]


async def test_a_stream_of_a_replaced_adapter_ends(mortal: MortalPool) -> None:
    """Its text would go on with the values of another version."""
    await ask(mortal, LoadAdapter("a", "good"))
    streams = [mortal.pool.generate(request(name, *range(100), adapter=name)) for name in ("a", "")]
    for stream in streams:
        await anext(stream)
    await ask(mortal, LoadAdapter("a", "better"))
    for index in range(2):
        mortal.life(index).die()
    assert mortal._may_restart is not None
    mortal._may_restart.set()
    with pytest.raises(EngineDeadError):
        async for _ in streams[0]:
            pass
    assert [token async for event in streams[1] for token in event.token_ids] == [*range(1, 100), EOS]


async def test_dead_engines_are_an_error(mortal: MortalPool) -> None:
    for index in range(2):
        mortal.life(index).die()
    with pytest.raises(EngineDeadError):
        await mortal.pool.control(LoadAdapter("a", "good"))


def test_routers_hash_prefixes_as_engines_do() -> None:
    """By the adapter's files, so that an adapter has the same hashes in all engines, whatever was loaded before it."""
    tables = [AdapterTable(4), AdapterTable(4)]
    tables[1].add("other", "/x", 1, 8, "digest of other")
    for version, table in enumerate(tables):
        table.add("a", "/x", version, 8, "digest of a")
    prompt = list(range(40))
    asked = Request(id="r", prompt=prompt, sampling=SamplingParams(), adapter="a", cache_salt="s")
    salts = {table.salted(asked).cache_salt for table in tables}
    assert len(salts) == 1
    tokens = np.array(prompt, np.int32)
    expected = block_hashes(tokens, salts.pop(), 16)
    assert prompt_prefixes(asked, 16, {"a": "digest of a"}).up_to(9) == expected
    assert prompt_prefixes(asked, 16, {"a": "digest of b"}).up_to(9) != expected
