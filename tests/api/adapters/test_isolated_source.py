"""A faulty adapter source costs a request, and no more."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from llmfw.api.adapters.isolated_source import MAX_THREADS, IsolatedSource, build_source
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ComponentFailedError, ConfigError, OverloadedError, RequestError
from llmfw.core.interfaces.adapter_source import AdapterSource
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry


class Answering(AdapterSource):
    """Answers by a function."""

    def __init__(self, answer: Callable[[str], Any]) -> None:
        super().__init__(AdapterSource.Options())
        self.find = answer  # type: ignore[method-assign]

    def find(self, name: str) -> str | None:
        raise NotImplementedError


@pytest.fixture
def end() -> Iterator[threading.Event]:
    """Return an event that ends the sources that hang."""
    event = threading.Event()
    yield event
    event.set()


def isolated(answer: Callable[[str], Any], timeout_s: float = 60.0) -> tuple[IsolatedSource, ComponentCalls]:
    calls = ComponentCalls(Entry("adapter_source", "odd", "x:Y", "odd_plugin", "odd", "1.0"))
    return IsolatedSource(Answering(answer), calls, timeout_s), calls


def failing(error: BaseException) -> Callable[[str], Any]:
    def find(name: str) -> str:
        raise error

    return find


async def test_answers_come_from_other_threads() -> None:
    found: list[threading.Thread] = []

    def find(name: str) -> str:
        found.append(threading.current_thread())
        return f"/adapters/{name}"

    source, calls = isolated(find)
    assert await source.find("sql") == "/adapters/sql"
    assert found[0] is not threading.current_thread()
    assert (calls.count, calls.failures) == (1, 0)
    source.close()


@pytest.mark.parametrize("error", [KeyError("oh"), SystemExit(3), MemoryError()])
async def test_exceptions_become_failures_of_the_source(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    source, calls = isolated(failing(error))
    with pytest.raises(ComponentFailedError, match="adapter source 'odd' of plugin 'odd_plugin' failed"):
        await source.find("sql")
    assert calls.failures == 1
    assert "failed in find()" in caplog.text


@pytest.mark.parametrize("answer", ["relative/path", 7, b"/x", ["/x"], ""])
async def test_wrong_answers_are_failures(answer: object) -> None:
    source, calls = isolated(lambda name: answer)
    with pytest.raises(ComponentFailedError):
        await source.find("sql")
    assert calls.failures == 1


@pytest.mark.parametrize("error", [RequestError("not for you"), OverloadedError("later")])
async def test_a_source_may_refuse(error: Exception) -> None:
    source, calls = isolated(failing(error))
    with pytest.raises(type(error), match=str(error)):
        await source.find("sql")
    assert calls.failures == 0


async def test_a_source_that_hangs_holds_nobody(
    end: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even once it holds all its threads."""
    source, calls = isolated(lambda name: end.wait() and None, timeout_s=0.05)
    begun = time.monotonic()
    with caplog.at_level(logging.ERROR):
        asked = [source.find(f"x{i}") for i in range(2 * MAX_THREADS)]
        found = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(each) for each in found} == {OverloadedError}
    assert time.monotonic() - begun < 30
    assert "did not find adapter 'x0' within 0.05 s" in caplog.text
    assert calls.failures == 2 * MAX_THREADS
    source.close()


def test_sources_need_room_and_their_options(tmp_path: Any) -> None:
    registry = load_plugins().registry
    roomy = EngineConfig(model="m", max_adapters=2)
    server = ServerConfig(
        served_model_name="m", adapter_source="folder", options={"adapter_source.path": str(tmp_path)}
    )
    source = build_source(roomy, server, registry)
    assert source is not None
    source.close()
    assert build_source(roomy, ServerConfig(served_model_name="m"), registry) is None
    with pytest.raises(ConfigError, match="there is no room for adapters; give --max-adapters"):
        build_source(EngineConfig(model="m"), server, registry)
    useless = ServerConfig(served_model_name="m", options={"adapter_source.path": "x"})
    with pytest.raises(ConfigError, match="no adapter source is chosen"):
        build_source(roomy, useless, registry)
