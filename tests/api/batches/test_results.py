"""Results reach the store in groups, none is lost while it cannot take them, and none is counted twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from llmfw.api.batches.backoff import Backoff
from llmfw.api.batches.results import GROUP, ResultBuffer
from llmfw.core.base.errors import StorageError
from llmfw.core.interfaces.batch_store import LineResult
from llmfw.plugins.store_memory.batches import MemoryResults


class Results(MemoryResults):
    """Notes the sizes of groups, and fails so many times."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__("batch_1")
        self.groups: list[int] = []
        self.failures = failures

    async def add(self, results: object) -> None:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise StorageError("the disk is full")
        self.groups.append(len(results))  # type: ignore[arg-type]
        await super().add(results)  # type: ignore[arg-type]


def result(line: int) -> LineResult:
    return LineResult(line, False, b"{}")


@asynccontextmanager
async def writing(results: Results) -> AsyncIterator[ResultBuffer]:
    buffer = ResultBuffer(results, Backoff("batch_1", 0.001))
    task = asyncio.create_task(buffer.write())
    yield buffer
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_simultaneous_results_are_written_together() -> None:
    results = Results()
    async with writing(results) as buffer:
        for line in range(2 * GROUP):
            buffer.add(result(line))
        await buffer.drain()
    assert await results.done() == set(range(2 * GROUP))
    assert len(results.groups) == 1


async def test_a_few_results_are_written_soon() -> None:
    results = Results()
    async with writing(results) as buffer:
        buffer.add(result(1))
        await asyncio.sleep(0.2)
    assert results.groups == [1]


async def test_a_failing_store_loses_no_results(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log says it once."""
    caplog.set_level("INFO")
    results = Results(failures=4)
    async with writing(results) as buffer:
        for line in range(10):
            buffer.add(result(line))
            await asyncio.sleep(0.002)
        await buffer.drain()
        await buffer.healthy()
    assert await results.done() == set(range(10))
    assert caplog.messages == [
        "Batch batch_1 waits, and will go on: the disk is full",
        "Batch batch_1 goes on",
    ]


async def test_producers_wait_while_the_store_fails() -> None:
    results = Results(failures=10**9)
    async with writing(results) as buffer:
        buffer.add(result(1))
        await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(buffer.healthy(), 0.05)
        results.failures = 0
        await buffer.healthy()
    assert await results.done() == {1}


async def test_a_cancelled_writer_keeps_unwritten_results() -> None:
    results = Results(failures=10**9)
    async with writing(results) as buffer:
        buffer.add(result(1))
        await asyncio.sleep(0.1)
    results.failures = 0
    await buffer.flush()
    assert await results.done() == {1}


async def test_results_added_during_writes_are_written() -> None:
    results = Results()
    async with writing(results) as buffer:
        for line in range(500):
            buffer.add(result(line))
            if line % 7 == 0:
                await asyncio.sleep(0)
        await buffer.drain()
    assert await results.done() == set(range(500))
