"""Batch stores that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmfw.core.interfaces.batch_store import BatchRecord, BatchResults, LineResult
from llmfw.core.testing import BatchStoreTests
from llmfw.plugins.store_memory.batches import MemoryBatches, MemoryResults


class WithResults(MemoryBatches):
    """A store whose results are of another kind."""

    made: type[MemoryResults]

    async def create(self, record: BatchRecord) -> None:
        await super().create(record)
        self._results[record.id] = self.made(record.id)


class CountsDuplicates(WithResults):
    class made(MemoryResults):  # noqa: N801
        def counted(self, record: BatchRecord) -> BatchRecord:
            self.extra = getattr(self, "extra", 0)
            right = super().counted(record)
            return msgspec.structs.replace(right, num_completed=right.num_completed + self.extra)

        async def add(self, results: Sequence[LineResult]) -> None:
            before = set(await self.done())
            self.extra = getattr(self, "extra", 0) + sum(r.line in before and not r.failed for r in results)
            await super().add(results)


class KeepsLastResult(WithResults):
    class made(MemoryResults):  # noqa: N801
        async def add(self, results: Sequence[LineResult]) -> None:
            await super().add(results)
            for result in results:
                if self._lines is not None and self._lines[result.line].failed == result.failed:
                    self._lines[result.line] = result


class ReturnsArrivalOrder(WithResults):
    class made(MemoryResults):  # noqa: N801
        async def lines(self, *, failed: bool) -> AsyncIterator[Sequence[bytes]]:
            yield [result.data for result in self._kept().values() if result.failed == failed]


class SleepsInAdd(WithResults):
    class made(MemoryResults):  # noqa: N801
        async def add(self, results: Sequence[LineResult]) -> None:
            time.sleep(0.2)  # noqa: ASYNC251
            await super().add(results)


class DropsLastLine(WithResults):
    class made(MemoryResults):  # noqa: N801
        async def add(self, results: Sequence[LineResult]) -> None:
            await super().add(results[:49] if len(results) > 50 else results)


class DropsResultsAtUpdates(MemoryBatches):
    async def update(self, record: BatchRecord, *, expected: str) -> bool:
        is_updated = await super().update(record, expected=expected)
        if is_updated and record.status == "finalizing":
            self._results.pop(record.id)
        return is_updated


class IgnoresExpectedStatus(MemoryBatches):
    async def update(self, record: BatchRecord, *, expected: str) -> bool:
        return await super().update(record, expected=(await self.get(record.id)).status)


class UpdatesNonAtomically(MemoryBatches):
    async def update(self, record: BatchRecord, *, expected: str) -> bool:
        found = (await self.get(record.id)).status
        await asyncio.sleep(0)
        return found == expected and await super().update(record, expected=(await self.get(record.id)).status)


class TakesCountsFromUpdates(MemoryBatches):
    async def update(self, record: BatchRecord, *, expected: str) -> bool:
        done = await super().update(record, expected=expected)
        if done and record.id not in self._results:
            self._records[record.id] = record
        return done


class AllowsTwoOwners(MemoryBatches):
    async def lease(self, batch_id: str, owner: str, seconds: float) -> bool:
        free = batch_id not in self._leases
        await asyncio.sleep(0)
        return await super().lease(batch_id, owner, seconds) or free


class NeverExpiresLeases(MemoryBatches):
    async def lease(self, batch_id: str, owner: str, seconds: float) -> bool:
        return await super().lease(batch_id, owner, seconds and 3600)


class LetsAnyoneRelease(MemoryBatches):
    async def lease(self, batch_id: str, owner: str, seconds: float) -> bool:
        if not seconds:
            self._leases.pop(batch_id, None)
        return await super().lease(batch_id, owner, seconds)


class KeepsEndedResults(MemoryBatches):
    def results(self, batch_id: str) -> BatchResults:
        self.all = getattr(self, "all", {})
        if batch_id in self._results:
            self.all[batch_id] = self._results[batch_id]
            self.all[batch_id].drop = lambda: None
        return self.all[batch_id]


class DropsModelField(MemoryBatches):
    async def create(self, record: BatchRecord) -> None:
        await super().create(msgspec.structs.replace(record, model=None))


class ListsEndedJobs(MemoryBatches):
    async def list(self, *, unfinished: bool = False, **options: Any) -> Sequence[BatchRecord]:
        return await super().list(**options)


class ListsHundred(MemoryBatches):
    async def list(self, **options: Any) -> Sequence[BatchRecord]:
        return (await super().list(**options))[:100]


class ListsTwentyUnfinished(MemoryBatches):
    async def list(self, *, unfinished: bool = False, **options: Any) -> Sequence[BatchRecord]:
        found = await super().list(unfinished=unfinished, **options)
        return found[:20] if unfinished else found


class OfKind(BatchStoreTests):
    kind: Callable[[Path], MemoryBatches]

    @pytest.fixture
    def open_store(self) -> Callable[[Path], MemoryBatches]:
        return type(self).kind


class TestCountsDuplicates(OfKind):
    kind = CountsDuplicates


class TestKeepsLastResult(OfKind):
    kind = KeepsLastResult


class TestReturnsArrivalOrder(OfKind):
    kind = ReturnsArrivalOrder


class TestSleepsInAdd(OfKind):
    kind = SleepsInAdd


class TestDropsLastLine(OfKind):
    kind = DropsLastLine


class TestIgnoresExpectedStatus(OfKind):
    kind = IgnoresExpectedStatus


class TestUpdatesNonAtomically(OfKind):
    kind = UpdatesNonAtomically


class TestTakesCountsFromUpdates(OfKind):
    kind = TakesCountsFromUpdates


class TestAllowsTwoOwners(OfKind):
    kind = AllowsTwoOwners


class TestNeverExpiresLeases(OfKind):
    kind = NeverExpiresLeases


class TestLetsAnyoneRelease(OfKind):
    kind = LetsAnyoneRelease


class TestDropsResultsAtUpdates(OfKind):
    kind = DropsResultsAtUpdates


class TestKeepsEndedResults(OfKind):
    kind = KeepsEndedResults


class TestDropsModelField(OfKind):
    kind = DropsModelField


class TestListsEndedJobs(OfKind):
    kind = ListsEndedJobs


class TestListsHundred(OfKind):
    kind = ListsHundred


class TestListsTwentyUnfinished(OfKind):
    kind = ListsTwentyUnfinished


class TestLosesDataOnClose(OfKind):
    kind = MemoryBatches

    @pytest.fixture
    def survives_reopening(self) -> bool:
        return True
