"""Adapters that are not loaded are searched for, within limits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable

import pytest

from llmfw.api.adapters import search as module
from llmfw.api.adapters.search import MAX_OF_TENANT, MAX_REMEMBERED, MISSING_S, AdapterSearch
from llmfw.api.text.model_names import ModelNames
from llmfw.core.base.control import AdapterInfo, AdapterList
from llmfw.core.base.errors import (
    ComponentFailedError,
    ModelNotFoundError,
    OverloadedError,
    RequestError,
    TenantLimitError,
)


class Server:
    """A source, and the adapters that an engine with a few places has loaded."""

    def __init__(self, num_places: int = 2) -> None:
        self.now = 100.0
        self.names = ModelNames("base", "base", clock=lambda: self.now)
        self.asked: Counter[str] = Counter()
        self.loads: Counter[str] = Counter()
        self.loaded: dict[str, AdapterInfo] = {}
        self.missing: set[str] = set()
        self.broken: set[str] = set()
        self.faulty: set[str] = set()
        self.num_places = num_places
        self.gate = asyncio.Event()
        self.gate.set()
        self.search = AdapterSearch(self, self, self.names, clock=lambda: self.now)
        self.names.search = self.search.find

    async def find(self, name: str) -> str | None:
        self.asked[name] += 1
        await self.gate.wait()
        if name in self.faulty:
            raise ComponentFailedError("the source failed")
        return None if name in self.missing else f"/adapters/{name}"

    async def list(self) -> AdapterList:
        found = AdapterList([*self.loaded.values()], 1, 16, self.num_places)
        self.names.update(found.adapters)
        return found

    async def load(self, name: str, path: str) -> AdapterInfo:
        self.loads[name] += 1
        if name in self.broken:
            raise RequestError("adapter '/adapters/secret' has NaN", param="path")
        assert len(self.loaded) < self.num_places
        self.loaded[name] = AdapterInfo(name, path, 1, "ready", digest=name)
        await self.list()
        return self.loaded[name]

    async def unload(self, name: str) -> AdapterList:
        del self.loaded[name]
        return await self.list()

    async def ask(self, model: str, tenant: str = "") -> str:
        """Do what a request does; return the adapter that it gets."""
        await self.names.find(model, tenant)
        adapter = self.names.adapter_of(model)
        self.now += 1
        return adapter


async def test_unloaded_adapters_are_found_once() -> None:
    server = Server()
    server.gate.clear()
    asking = [asyncio.create_task(server.ask(model)) for model in ("sql", "base:sql", "sql")]
    await asyncio.sleep(0)
    asking[2].cancel()
    await asyncio.sleep(0)
    server.gate.set()
    assert [await each for each in asking[:2]] == ["sql", "sql"]
    assert await server.ask("sql") == "sql"
    assert (server.asked, server.loads) == ({"sql": 1}, {"sql": 1})
    assert await server.ask("base") == ""


async def test_unknown_names_are_remembered_for_seconds() -> None:
    server = Server()
    server.missing.add("none")
    for _ in range(3):
        with pytest.raises(ModelNotFoundError, match="no model 'none'"):
            await server.ask("none")
    assert server.asked["none"] == 1
    server.now += MISSING_S
    server.missing.clear()
    assert await server.ask("none") == "none"


async def test_names_that_no_adapter_has_are_not_asked() -> None:
    server = Server()
    for model in ("", "x" * 257, "/x", "x\n", "base:", "base:/x"):
        with pytest.raises(ModelNotFoundError):
            await server.ask(model)
    assert not server.asked


async def test_few_unknown_names_are_remembered() -> None:
    server = Server()
    server.missing = {f"n{i}" for i in range(MAX_REMEMBERED + 10)}
    for i in range(MAX_REMEMBERED + 10):
        await server.names.find(f"n{i}", "")
    await server.names.find(f"n{MAX_REMEMBERED + 9}", "")
    await server.names.find("n0", "")
    assert (server.asked[f"n{MAX_REMEMBERED + 9}"], server.asked["n0"]) == (1, 2)


async def test_broken_adapters_are_loaded_once() -> None:
    """Clients do not see the paths of the server."""
    server = Server()
    server.broken.add("bad")
    for _ in range(3):
        with pytest.raises(
            RequestError, match=r"^the adapter 'bad' cannot be served; the server's log says why$"
        ):
            await server.ask("bad")
    assert server.loads["bad"] == 1


async def test_a_failing_source_ends_its_request_alone() -> None:
    server = Server()
    server.faulty.add("bad")
    for _ in range(2):
        with pytest.raises(ComponentFailedError):
            await server.ask("bad")
    assert await server.ask("good") == "good"


async def test_the_least_recently_used_adapter_leaves() -> None:
    server = Server()
    for name in ("a", "b", "a", "c"):
        assert await server.ask(name) == name
    assert set(server.loaded) == {"a", "c"}


async def test_adapters_in_use_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """So do the adapters of administrators, and one that a request has just named."""
    monkeypatch.setattr(module, "WAIT_S", 0.0)
    server = Server(num_places=3)
    await server.load("own", "/own")
    for name in ("a", "b"):
        await server.ask(name)
    server.loaded["a"] = AdapterInfo("a", "/a", 1, "ready", num_requests=1)
    server.names.adapter_of("b")
    with pytest.raises(OverloadedError, match="all 3 places for adapters are in use"):
        await server.ask("c")
    server.now += 1
    assert await server.ask("c") == "c"
    assert set(server.loaded) == {"own", "a", "c"}


async def test_a_search_waits_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.001)
    server = Server(num_places=1)
    await server.ask("a")
    server.loaded["a"] = AdapterInfo("a", "/a", 1, "ready", num_requests=1)
    asking = asyncio.create_task(server.ask("b"))
    await asyncio.sleep(0.02)
    assert not asking.done()
    server.loaded["a"] = AdapterInfo("a", "/a", 1, "ready")
    assert await asking == "b"


async def test_a_greedy_tenant_loses_its_own() -> None:
    server = Server(num_places=4)
    await server.ask("theirs", "ann")
    for i in range(20):
        await server.ask(f"x{i}", "greedy")
    assert set(server.loaded) == {"theirs", "x17", "x18", "x19"}


async def test_tenants_have_few_searches_at_once() -> None:
    server = Server(num_places=20)
    server.gate.clear()
    asking: list[Awaitable[str]] = [
        asyncio.create_task(server.ask(f"x{i}", "greedy")) for i in range(MAX_OF_TENANT)
    ]
    await asyncio.sleep(0)
    with pytest.raises(TenantLimitError, match=f"{MAX_OF_TENANT} adapters are being searched"):
        await server.ask("one more", "greedy")
    other = asyncio.create_task(server.ask("theirs", "ann"))
    await asyncio.sleep(0)
    server.gate.set()
    assert await other == "theirs"
    await asyncio.gather(*asking)
    assert await server.ask("one more", "greedy") == "one more"


async def test_closing_refuses_the_requests_that_wait() -> None:
    """They are not cancelled, so that their clients get an error that they may retry."""
    server = Server()
    server.gate.clear()
    asking = [asyncio.create_task(server.ask("a")) for _ in range(2)]
    await asyncio.sleep(0)
    await server.search.close()
    for each in asking:
        with pytest.raises(OverloadedError, match="the server is shutting down"):
            await each
    assert not server.loads
