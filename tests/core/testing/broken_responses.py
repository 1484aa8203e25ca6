"""Response stores that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmfw.core.interfaces.response_store import ResponseRecord, ResponseStore
from llmfw.core.testing import ResponseStoreTests
from llmfw.plugins.store_memory.responses import MemoryResponses


class DropsInput(MemoryResponses):
    async def put(self, record: ResponseRecord) -> None:
        await super().put(msgspec.structs.replace(record, input=b""))


class KeepsFirstVersion(MemoryResponses):
    async def put(self, record: ResponseRecord) -> None:
        if record.id not in self._records:
            await super().put(record)


class ReturnsNone(MemoryResponses):
    async def get(self, response_id: str) -> Any:
        return self._records.get(response_id)


class NewestFirst(MemoryResponses):
    async def conversation(self, response_id: str) -> Sequence[ResponseRecord]:
        return (await super().conversation(response_id))[::-1]


class MixesBranches(MemoryResponses):
    async def conversation(self, response_id: str) -> Sequence[ResponseRecord]:
        await super().conversation(response_id)
        return [self._records[id] for id in sorted(self._conversations[self._roots[response_id]])]


class ReturnsTheLastTen(MemoryResponses):
    async def conversation(self, response_id: str) -> Sequence[ResponseRecord]:
        return (await super().conversation(response_id))[-10:]


class NormalizesIds(MemoryResponses):
    async def get(self, response_id: str) -> ResponseRecord:
        return await super().get(response_id.strip().lower())


class DeletesConversation(MemoryResponses):
    async def delete(self, response_id: str) -> None:
        self._forget(self._roots[response_id])


class IgnoresGaps(MemoryResponses):
    async def conversation(self, response_id: str) -> Sequence[ResponseRecord]:
        found = [self._records[response_id]]
        while (previous := self._records.get(found[-1].previous or "")) is not None:
            found.append(previous)
        return found[::-1]


class IgnoresQueued(MemoryResponses):
    async def unfinished(self) -> Sequence[ResponseRecord]:
        return [record for record in await super().unfinished() if record.status == "in_progress"]


class FindsTwentyUnfinished(MemoryResponses):
    async def unfinished(self) -> Sequence[ResponseRecord]:
        return (await super().unfinished())[:20]


class PurgesHundred(MemoryResponses):
    async def purge(self, before: float) -> int:
        old = [record.id for record in self._records.values() if record.created_at < before]
        if len(old) <= 100:
            return await super().purge(before)
        for id in old[:100]:
            await self.delete(id)
        return 100


class PurgesTurns(MemoryResponses):
    async def purge(self, before: float) -> int:
        old = [record.id for record in self._records.values() if record.created_at < before]
        for id in old:
            await self.delete(id)
        return len(old)


class CountsConversations(MemoryResponses):
    async def purge(self, before: float) -> int:
        return min(1, await super().purge(before))


class NeverEvicts(MemoryResponses):
    def __init__(self, folder: Path | None, max_bytes: int) -> None:
        super().__init__(folder, 2**30)


class IgnoresInputSize(MemoryResponses):
    async def put(self, record: ResponseRecord) -> None:
        self._max_bytes += len(record.input)
        await super().put(record)


class SleepsInPut(MemoryResponses):
    async def put(self, record: ResponseRecord) -> None:
        time.sleep(0.2)  # noqa: ASYNC251
        await super().put(record)


class WritesInTwoSteps(MemoryResponses):
    async def put(self, record: ResponseRecord) -> None:
        old = self._records.get(record.id, record)
        await super().put(msgspec.structs.replace(record, input=old.input))
        await asyncio.sleep(0)
        await super().put(record)


class OfKind(ResponseStoreTests):
    kind: type[ResponseStore]

    @pytest.fixture
    def open_store(self) -> type[ResponseStore]:
        return self.kind


def test_class(kind: type[ResponseStore]) -> Any:
    """Return a test class for a store."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in MemoryResponses.__subclasses__():
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)


class TestLosesDataOnClose(OfKind):
    kind = MemoryResponses

    @pytest.fixture
    def survives_reopening(self) -> bool:
        return True
