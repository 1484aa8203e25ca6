"""What a part does to a request: nothing that it is not meant to, nothing that is not counted."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator

import pytest

from llmfw.core.base.errors import ComponentFailedError, RequestError, StorageError, StorageFullError
from llmfw.core.interfaces.batch_store import BatchResults, BatchStore
from llmfw.core.interfaces.chat_template import ChatTemplate
from llmfw.core.interfaces.file_store import FileStore
from llmfw.core.interfaces.parsers import ContentDelta, ReasoningParser, ToolParser
from llmfw.core.plugin.calls import ComponentCalls, ComponentLedger
from llmfw.core.plugin.guard import guarded
from llmfw.core.plugin.registry import Entry

TOOLS = Entry("tool_parser", "bad", "ext.tools:Bad", "ext", "llmfw-ext", "1.2")
FILES = Entry("file_store", "bad", "ext.files:Bad", "ext", "llmfw-ext", "1.2")


@pytest.fixture
def calls() -> ComponentCalls:
    return ComponentCalls(TOOLS)


def broken(*args: object) -> int:
    return args[7]  # type: ignore[return-value]


def test_clients_see_the_component_and_logs_the_details(
    calls: ComponentCalls, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ComponentFailedError) as caught:
        calls.call(broken)
    assert str(caught.value) == (
        "tool parser 'bad' of plugin 'ext' failed on this request; the server's log says why"
    )
    [record] = caplog.records
    assert record.getMessage() == (
        "tool parser 'bad' of plugin 'ext' (llmfw-ext 1.2, ext.tools:Bad) failed in broken(): "
        "IndexError: tuple index out of range"
    )
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert (calls.count, calls.failures) == (1, 1)


@pytest.mark.parametrize("raised", [SystemExit(3), KeyError("x"), ZeroDivisionError()])
def test_no_exception_ends_more_than_the_request(calls: ComponentCalls, raised: BaseException) -> None:
    def fail() -> None:
        raise raised

    with pytest.raises(ComponentFailedError):
        calls.call(fail)


def test_request_errors_pass_through(calls: ComponentCalls, caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> None:
        raise RequestError("no such tool", param="tools")

    with pytest.raises(RequestError, match="no such tool"):
        calls.call(refuse)
    assert (calls.failures, caplog.records) == (0, [])


async def test_a_store_may_raise_key_error() -> None:
    async def get(file_id: str) -> None:
        raise KeyError(file_id)

    with pytest.raises(KeyError):
        await ComponentCalls(FILES).wait(get, "file-1")


async def test_what_a_store_refuses_is_counted() -> None:
    async def get(raised: Exception) -> None:
        raise raised

    calls = ComponentCalls(FILES)
    for error in (StorageFullError("no room"), StorageError("locked")):
        with pytest.raises(type(error)):
            await calls.wait(get, error)
    with pytest.raises(KeyError):
        await calls.wait(get, KeyError("file-1"))
    assert (calls.use().refused, calls.use().failures) == (2, 0)


def test_nested_calls_count_time_once() -> None:
    class Slow(ToolParser):
        def feed(self, text: str) -> list[ContentDelta]:
            time.sleep(0.02)
            return [*self.finish(), ContentDelta(text)]

        def finish(self) -> list[ContentDelta]:
            time.sleep(0.02)
            return []

    calls = ComponentCalls(TOOLS)
    parser = guarded(Slow, ToolParser, calls)([])
    assert parser.feed("a") == [ContentDelta("a")]
    assert calls.count == 1
    assert 0.04 <= calls.seconds < 0.06 + 0.2


async def pieces(pause: float, error: Exception | None = None) -> AsyncIterator[bytes]:
    yield b"a"
    await asyncio.sleep(pause)
    if error is not None:
        raise error
    yield b"b"


class Files:
    """As much of a file store as is asked here."""

    async def put(self, chunks: AsyncIterator[bytes], describe: object) -> bytes:
        return b"".join([chunk async for chunk in chunks])

    async def read(self, file_id: str) -> AsyncIterator[bytes]:
        yield b"a"
        raise OSError("the disk is gone")


async def test_reading_from_the_caller_is_not_charged() -> None:
    """A store is charged neither for the time nor for the errors of the chunks it reads."""
    calls, gone = ComponentCalls(FILES), ConnectionError("the client went")
    assert await calls.wait(Files().put, pieces(0.1), print) == b"ab"
    assert calls.seconds < 0.05
    with pytest.raises(ConnectionError) as caught:
        await calls.wait(Files().put, pieces(0, gone), print)
    assert caught.value is gone
    assert calls.failures == 0


async def test_a_store_failing_mid_read_is_named() -> None:
    calls = ComponentCalls(FILES)
    read = calls.iterate(Files().read, "file-1")
    assert await anext(read) == b"a"
    with pytest.raises(ComponentFailedError, match="file store 'bad'"):
        await anext(read)


def test_a_guarded_class_keeps_its_attributes() -> None:
    class Think(ReasoningParser):
        """Says nothing."""

        opening = "<think>"

        def feed(self, text: str) -> list[ContentDelta]:
            raise AttributeError(text)

        finish = feed  # type: ignore[assignment]

    made = guarded(Think, ReasoningParser, ComponentCalls(TOOLS), per_request=True)
    assert (made.opening, made.__qualname__, made.__module__) == (
        "<think>",
        Think.__qualname__,
        __name__,
    )
    parser = made(in_reasoning=True)
    assert isinstance(parser, Think)
    assert parser.in_reasoning
    with pytest.raises(ComponentFailedError):
        parser.feed("x")


def test_constructing_a_component_is_a_call() -> None:
    class Picky(ToolParser):
        def __init__(self, tools: object) -> None:
            raise RuntimeError("no")

        def feed(self, text: str) -> list[ContentDelta]:
            return []

        def finish(self) -> list[ContentDelta]:
            return []

    with pytest.raises(ComponentFailedError):
        guarded(Picky, ToolParser, ComponentCalls(TOOLS), per_request=True)([])


def test_a_guarded_incomplete_class_stays_abstract() -> None:
    class Half(ChatTemplate):
        pass

    with pytest.raises(TypeError, match="render"):
        guarded(Half, ChatTemplate, ComponentCalls(TOOLS))("", {})  # type: ignore[abstract]


async def test_batch_results_count_as_store_calls() -> None:
    class Results(BatchResults):
        async def add(self, results: object) -> None: ...

        async def done(self) -> set[int]:
            raise OSError("locked")

        async def lines(self, *, failed: bool) -> AsyncIterator[list[bytes]]:
            yield [b"{}"]

    class Batches:
        def results(self, batch_id: str) -> Results:
            return Results()

    calls = ComponentCalls(Entry("batch_store", "bad", "m:C", "ext", "llmfw-ext", "1.2"))
    results = guarded(Batches, BatchStore, calls)().results("batch-1")
    assert [lines async for lines in results.lines(failed=False)] == [[b"{}"]]
    with pytest.raises(ComponentFailedError, match="batch store 'bad'"):
        await results.done()


def test_every_store_method_is_guarded() -> None:
    from llmfw.plugins.store_memory.files import MemoryFiles

    made = guarded(MemoryFiles, FileStore, ComponentCalls(FILES))
    own = {name for name, kind in vars(FileStore).items() if inspect.isfunction(kind) and name[0] != "_"}
    assert own <= set(vars(made))


def test_the_ledger_sums_calls_of_each_component() -> None:
    ledger = ComponentLedger()
    with pytest.raises(ComponentFailedError):
        ledger.of(TOOLS).call(broken)
    ledger.of(TOOLS).timed(len, "abc")
    [use] = ledger.uses()
    assert (use.kind, use.name, use.plugin) == ("tool_parser", "bad", "ext")
    assert (use.calls, use.failures) == (2, 1)
    assert use.seconds > 0


@pytest.mark.parametrize("way", ["timed", "call"])
def test_a_slow_call_is_logged_once_a_minute(
    calls: ComponentCalls, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    now = 100.0
    monkeypatch.setattr("llmfw.core.plugin.calls.perf_counter", lambda: now)

    def work(seconds: float) -> None:
        nonlocal now
        now += seconds

    for seconds, expected in ((0.5, 0), (5.0, 1), (7.0, 1), (60.0, 2)):
        getattr(calls, way)(work, seconds)
        assert len(caplog.records) == expected
    assert f"{calls.entry} took 5.0 s in one call" in caplog.text
