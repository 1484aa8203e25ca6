"""A line whose task ends without a result is never taken for a line that has one."""

from __future__ import annotations

import asyncio

import pytest

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
    with pytest.raises(RuntimeError, match="was cancelled"):
        await flight.failed
    await flight.abort()


async def test_aborted_lines_are_no_failures() -> None:
    flight = Flight(Window(4), "job")
    await flight.send(asyncio.sleep(60))
    await flight.abort()
    assert flight.failed.cancelled()
