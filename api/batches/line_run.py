"""Runs the lines of one job until all have a result, the time is up or the job is halted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

from msgspec import Raw

from llmfw.api.background.tasks import SelfCancelledError, withdraw_self_cancel
from llmfw.api.text.terms import key_name
from llmfw.core.base.errors import CrashingRequestError, EngineDeadError
from llmfw.core.interfaces.batch_store import BatchRecord, BatchResults, LineResult

from .blame import suspects
from .endpoints import Answer, failed
from .flight import Flight
from .input_lines import LongLine, read_lines
from .job_context import JobContext
from .line_decoding import decode_line
from .output_lines import answered, unrun
from .results import ResultBuffer
from .work_marks import Mark, current_mark

logger = logging.getLogger(__name__)

RECHECK_S = 1.0  # seconds between checks whether the lines can run now


class AdapterChangedError(Exception):
    """An adapter that a job's lines use has been unloaded, or replaced by other files."""


class LineRun:
    """Runs the lines of an accepted job. `Job` creates one for each attempt, and calls `until` once.

    Args:
        results: the job's results in the store.
        buffer: buffer for new results.

    Attributes:
        lost: numbers of the lines whose requests were lost when the engine died.
    """

    def __init__(
        self, record: BatchRecord, context: JobContext, results: BatchResults, buffer: ResultBuffer
    ) -> None:
        self._record = record
        self._context = context
        self._results = results
        self._buffer = buffer
        self._flying: dict[int, Mark] = {}
        self.lost: frozenset[int] = frozenset()

    async def until(self, halted: asyncio.Event, seconds: float) -> str:
        """Run the lines. Return "completed" when all have results, "expired" after `seconds`, or "halted".

        No line is in flight when the call returns or raises.

        Raises:
            InputGoneError: the input file does not exist.
            AdapterChangedError: an adapter of the job has been unloaded or replaced.
            EngineDeadError: this server cannot answer any more.
            StorageError: the input cannot be read now, or an answer cannot be stored.
        """
        deadline = time.monotonic() + seconds
        halting = asyncio.create_task(halted.wait())
        try:
            if not await self._until_possible(halting, deadline):
                return "halted" if halting.done() else "expired"
            return await self._until(halting, max(0.0, deadline - time.monotonic()))
        finally:
            await stopped(halting)

    async def _until_possible(self, halting: asyncio.Task[bool], deadline: float) -> bool:
        """Wait until the lines can run on this server, and return True.

        Returns False if the time is up or the job is halted first.
        """
        before = None
        while True:
            record = self._record
            endpoints = self._context.endpoints
            await endpoints.find_adapters(record.model, record.adapters, record.tenant)
            reason = endpoints.reason_against(record.endpoint, record.model, record.adapters)
            if reason is None:
                return True
            if reason != before:
                logger.warning("Batch %s cannot go on here: %s", self._record.id, reason)
            before, left = reason, deadline - time.monotonic()
            if left <= 0:
                return False
            await asyncio.wait({halting}, timeout=min(RECHECK_S, left))
            if halting.done():
                return False

    async def _until(self, halting: asyncio.Task[bool], seconds: float) -> str:
        flight = Flight(self._context.windows.of(self._record.model), self._record.id)
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
            if self._context.endpoints.failure_of(self._record.model) is not None:
                self._record_lost()  # now, because the server may end before a line fails
            await stopped(feeding)
            await flight.abort()
            await stopped(writing)

    async def _feed(self, flight: Flight) -> None:
        """Send the lines that have no result yet, then wait until all results are in the store."""
        async with self._context.running:
            done = set(await self._results.done())
            guilty = suspects(self._record)
            lines = read_lines(self._context.files, self._record.input_file_id)
            async with contextlib.aclosing(lines):
                async for number, raw in lines:
                    if number not in done:
                        await self._buffer.healthy()
                        await self._context.tenants.ready(self._record.tenant)
                        if number not in guilty:
                            await flight.send(self._answer(number, raw, flight))
                        elif not guilty[number]:
                            await flight.send_alone(self._answer(number, raw, flight))
                        else:
                            self._refuse(number, raw)
                        await asyncio.sleep(0)  # let this line's task start before the next line is sent
            await flight.wait_until_landed()
            await self._buffer.drain()

    async def _answer(self, number: int, raw: bytes | LongLine, flight: Flight) -> None:
        """Run one line and buffer its result."""
        assert isinstance(raw, bytes)  # it was validated
        line = decode_line(raw)
        assert isinstance(line.body, Raw)
        key_name.set(self._record.tenant)  # for this line only: its task has its own context
        with self._context.marks.marked(self._record.id, number) as mark:
            current_mark.set(mark)
            self._flying[number] = mark
            try:
                self._check_adapters()
                answer = await self._reply(bytes(line.body), flight)
                self._check_adapters()  # the adapter may have been replaced or unloaded meanwhile
            except CrashingRequestError:
                self._refuse(number, raw)
                return
            except EngineDeadError:
                self._record_lost()
                raise
            finally:
                del self._flying[number]
        self._buffer.add(LineResult(number, answer.status >= 400, answered(line.custom_id, answer)))

    async def _reply(self, body: bytes, flight: Flight) -> Answer:
        """Answer a line's body; with an error if a plugin's code has cancelled the line's task."""
        endpoints, path = self._context.endpoints, self._record.endpoint
        work = endpoints.answer(path, body, self._record.model)
        try:
            return await withdraw_self_cancel(work, lambda: flight.is_ending)
        except SelfCancelledError as error:
            return failed(path, error)

    def _check_adapters(self) -> None:
        endpoints, record = self._context.endpoints, self._record
        if reason := endpoints.reason_against_adapters(record.model, record.adapters):
            raise AdapterChangedError(reason)

    def _record_lost(self) -> None:
        """Record the lines whose requests were in the engine when it died.

        Does nothing if lines were recorded before.
        """
        self.lost = self.lost or frozenset(n for n, mark in self._flying.items() if mark.was_sent)

    def _refuse(self, number: int, raw: bytes | LongLine) -> None:
        """Buffer an error as the result of a line that has crashed the server too often."""
        assert isinstance(raw, bytes)  # it was validated
        logger.error(
            "Batch %s: line %d has crashed the server, and is not run again", self._record.id, number
        )
        crashed = unrun(decode_line(raw).custom_id, "line_crashed_server")
        self._buffer.add(LineResult(number, True, crashed))


async def stopped(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end. Ignores its result or exception."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # marks the error as retrieved
