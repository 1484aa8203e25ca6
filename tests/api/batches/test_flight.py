"""A line whose task ends without a result is never taken for a line that has one."""

from __future__ import annotations

import asyncio

import pytest

from llmfw.api.background.tasks import SelfCancelledError
from llmfw.api.background.window import Window
from llmfw.api.batches.flight import Flight


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def test_a_line_that_cancels_its_task_fails() -> None:
    flight = Flight(Window(4), "job")
    await flight.send(cancels_itself())
    await flight.wait_until_landed()
    with pytest.raises(SelfCancelledError, match="cancelled its own task"):
        await flight.failed
    await flight.abort()


async def test_aborted_lines_are_no_failures() -> None:
    flight = Flight(Window(4), "job")
    await flight.send(asyncio.sleep(60))
    await flight.abort()
    assert flight.failed.cancelled()


async def test_lines_cancelled_with_their_job_do_not_fail() -> None:
    """Such as by the end of `asyncio.run`, which cancels all tasks in any order."""
    flights: list[Flight] = []

    async def job() -> None:
        flights.append(Flight(Window(4), "job"))
        await flights[0].send(asyncio.sleep(60))
        try:
            await asyncio.sleep(60)
        finally:
            await flights[0].abort()

    running = asyncio.create_task(job())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in [*flights[0]._tasks, running]:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert flights[0].failed.cancelled()
