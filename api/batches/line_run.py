"""The lines of one job, run until all have a result, or until something comes between."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from msgspec import Raw

from llmfw.core.batch_store import BatchRecord, BatchResults, LineResult

from ..terms import key_name
from .flight import Flight
from .input_lines import LongLine, read_lines
from .means import Means
from .output_lines import answered
from .results import ResultBuffer
from .validation import decode_line

logger = logging.getLogger(__name__)


class LineRun:
    """Runs the lines of an accepted job.

    Args:
        results: those that are in the store.
        buffer: takes what comes.
    """

    def __init__(
        self, record: BatchRecord, means: Means, results: BatchResults, buffer: ResultBuffer
    ) -> None:
        self._record = record
        self._means = means
        self._results = results
        self._buffer = buffer

    async def until(self, halted: asyncio.Event, seconds: float) -> str:
        """Run lines. Return "completed" when all have results, "expired" after so many seconds, or "halted".

        However it ends, no line is in flight then.

        Raises:
            InputGoneError: the input file is not there.
            EngineDeadError: nothing can be answered any more.
            StorageError: the input cannot be read now, or an answer not be kept.
        """
        halting = asyncio.create_task(halted.wait())
        reason = self._means.endpoints.reason_against(self._record.endpoint, self._record.model)
        try:
            if reason is None:
                return await self._until(halting, seconds)
            logger.warning("Batch %s cannot go on here: %s", self._record.id, reason)
            await asyncio.wait({halting}, timeout=seconds)
            return "halted" if halting.done() else "expired"
        finally:
            await stopped(halting)

    async def _until(self, halting: asyncio.Task[bool], seconds: float) -> str:
        flight = Flight(self._means.window, self._record.id)
        feeding = asyncio.create_task(self._feed(flight))
        writing = asyncio.create_task(self._buffer.write())
        first: set[asyncio.Future[Any]] = {feeding, writing, flight.failed, halting}
        try:
            await asyncio.wait(first, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for work in (feeding, writing, flight.failed):
                if work.done():
                    work.result()
            if feeding.done():
                return "completed"
            return "halted" if halting.done() else "expired"
        finally:
            await stopped(feeding)
            await flight.abort()
            await stopped(writing)

    async def _feed(self, flight: Flight) -> None:
        """Send the lines that have no result yet, and see all results into the store."""
        async with self._means.running:
            done = set(await self._results.done())
            lines = read_lines(self._means.files, self._record.input_file_id)
            async with contextlib.aclosing(lines):
                async for number, raw in lines:
                    if number not in done:
                        await self._buffer.healthy()
                        await flight.send(self._answer(number, raw))
                        await asyncio.sleep(0)  # each line's first work in a round of its own
            await flight.landed()
            await self._buffer.drain()

    async def _answer(self, number: int, raw: bytes | LongLine) -> None:
        """Run a line."""
        assert isinstance(raw, bytes)  # it was validated
        line = decode_line(raw)
        assert isinstance(line.body, Raw)
        key_name.set(self._record.tenant)  # each line is a task, with a context of its own
        answer = await self._means.endpoints.answer(self._record.endpoint, bytes(line.body))
        self._buffer.add(LineResult(number, answer.status >= 400, answered(line.custom_id, answer)))


async def stopped(task: asyncio.Task[Any]) -> None:
    """End a task, whatever comes of it."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # it was looked at
