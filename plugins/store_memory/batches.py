"""Batch jobs in memory."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

import msgspec

from llmfw.core import ENDED, BatchRecord, BatchResults, BatchStore, LineResult

PIECE = 100  # lines that are given at once


class MemoryBatches(BatchStore):
    """Keeps jobs and their results in dictionaries."""

    def __init__(self, folder: Path | None) -> None:
        self._records: dict[str, BatchRecord] = {}
        self._leases: dict[str, tuple[str, float]] = {}
        self._results: dict[str, MemoryResults] = {}

    async def create(self, record: BatchRecord) -> None:
        self._records[record.id] = record
        self._results[record.id] = MemoryResults(record.id)

    async def get(self, batch_id: str) -> BatchRecord:
        record, results = self._records[batch_id], self._results.get(batch_id)
        return record if results is None else results.counted(record)

    async def list(
        self,
        *,
        tenants: Collection[str] | None = None,
        after: str | None = None,
        limit: int,
        unfinished: bool = False,
    ) -> Sequence[BatchRecord]:
        found = [
            id
            for id in sorted(self._records, reverse=True)
            if (after is None or id < after)
            and not (unfinished and self._records[id].status in ENDED)
            and (tenants is None or self._records[id].tenant in tenants)
        ]
        return [await self.get(id) for id in found[:limit]]

    async def update(self, record: BatchRecord, *, expected: str) -> bool:
        old = await self.get(record.id)
        if old.status != expected:
            return False
        counts = {"num_completed": old.num_completed, "num_failed": old.num_failed}
        self._records[record.id] = msgspec.structs.replace(record, **counts)
        if record.status in ENDED and record.id in self._results:
            self._results.pop(record.id).drop()
            self._leases.pop(record.id, None)
        return True

    async def lease(self, batch_id: str, owner: str, seconds: float) -> bool:
        if batch_id not in self._records:
            raise KeyError(batch_id)
        holder, until = self._leases.get(batch_id, (owner, 0.0))
        now = time.monotonic()
        if holder != owner and until > now:
            return False
        self._leases[batch_id] = owner, now + seconds
        return True

    def results(self, batch_id: str) -> BatchResults:
        return self._results[batch_id]

    async def close(self) -> None:
        self._records.clear()
        self._results.clear()


class MemoryResults(BatchResults):
    """The results of one job, by line."""

    def __init__(self, batch_id: str) -> None:
        self._id = batch_id
        self._lines: dict[int, LineResult] | None = {}
        self._num_failed = 0

    def counted(self, record: BatchRecord) -> BatchRecord:
        """Return a job with the counts of its results."""
        return msgspec.structs.replace(
            record, num_completed=len(self._kept()) - self._num_failed, num_failed=self._num_failed
        )

    def drop(self) -> None:
        """Forget all: the job has ended."""
        self._lines = None

    async def add(self, results: Sequence[LineResult]) -> None:
        lines = self._kept()
        for result in results:
            if result.line not in lines:
                lines[result.line] = result
                self._num_failed += result.failed

    async def done(self) -> Collection[int]:
        return set(self._kept())

    async def lines(self, *, failed: bool) -> AsyncIterator[Sequence[bytes]]:
        lines = self._kept()
        found = [line for line in sorted(lines) if lines[line].failed == failed]
        for start in range(0, len(found), PIECE):
            lines = self._kept()
            yield [lines[line].data for line in found[start : start + PIECE]]

    def _kept(self) -> dict[int, LineResult]:
        if self._lines is None:
            raise KeyError(self._id)
        return self._lines
