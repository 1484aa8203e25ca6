"""Writes results to the store in groups, and buffers them while the store fails."""

from __future__ import annotations

import asyncio
import contextlib

from llmfw.core.base.errors import StorageError
from llmfw.core.interfaces.batch_store import BatchResults, LineResult

from .backoff import Backoff
from .counts import BatchCounts

GROUP = 100  # results that are written without waiting for more
WAIT_S = 0.05  # longest wait for a group to fill


class ResultBuffer:
    """Buffer of one job's results that are not in the store yet.

    `LineRun` runs `write` as a task while its lines add results. Between attempts, `Job` calls `flush`.

    Args:
        results: the job's results in the store.
        backoff: delay between retries of failed writes.
        counts: counts the results that were written.
    """

    def __init__(self, results: BatchResults, backoff: Backoff, counts: BatchCounts | None = None) -> None:
        self._results = results
        self._counts = counts or BatchCounts()
        self._backoff = backoff
        self._pending: list[LineResult] = []
        self._filled, self._full = asyncio.Event(), asyncio.Event()
        self._healthy, self._empty = asyncio.Event(), asyncio.Event()
        self._healthy.set()
        self._empty.set()

    def add(self, result: LineResult) -> None:
        """Add a result."""
        self._pending.append(result)
        self._filled.set()
        self._empty.clear()
        if len(self._pending) >= GROUP:
            self._full.set()

    async def healthy(self) -> None:
        """Wait until the store accepts results. Await this before producing another result."""
        await self._healthy.wait()

    async def drain(self) -> None:
        """Wait until all results are in the store. `write` must be running."""
        self._full.set()
        await self._empty.wait()

    async def write(self) -> None:
        """Write results to the store until cancelled. Retries writes that fail with StorageError.

        Raises:
            Exception: an error of the store other than StorageError. Results that were not written stay in
                the buffer.
        """
        while True:
            await self._filled.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    await self._full.wait()
            await self._write_all()

    async def flush(self) -> None:
        """Write all buffered results to the store; raise StorageError if this fails now."""
        while self._pending:
            group = list(self._pending)
            await self._results.add(group)
            self._counts.note_results(group)
            del self._pending[: len(group)]

    async def _write_all(self) -> None:
        self._full.clear()
        self._filled.clear()
        while True:
            try:
                await self.flush()
            except StorageError as error:
                self._healthy.clear()
                await self._backoff.wait(error)
            else:
                break
        self._backoff.reset()
        self._healthy.set()
        self._empty.set()
