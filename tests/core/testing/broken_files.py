"""File stores that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from llmfw.core.interfaces.file_store import Describe, FileRecord
from llmfw.core.testing import FileStoreTests
from llmfw.plugins.store_memory.files import MemoryFiles
from llmfw.plugins.store_sqlite.files import SqliteFiles


class DropsLastChunk(MemoryFiles):
    async def put(self, chunks: AsyncIterator[bytes], describe: Describe) -> FileRecord:
        whole = [chunk async for chunk in chunks]

        async def most() -> AsyncIterator[bytes]:
            for chunk in whole[:-1]:
                yield chunk

        return await super().put(most(), lambda size: describe(sum(map(len, whole))))


class OffByOneByte(MemoryFiles):
    async def read(self, file_id: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        async for piece in super().read(file_id, start, None if end is None else end + 1):
            yield piece


class KeepsPartialUploads(MemoryFiles):
    async def put(self, chunks: AsyncIterator[bytes], describe: Describe) -> FileRecord:
        async def until_it_breaks() -> AsyncIterator[bytes]:
            with contextlib.suppress(Exception):
                async for chunk in chunks:
                    yield chunk

        record = await super().put(until_it_breaks(), describe)
        async for _ in chunks:
            pass
        return record


class MixesVersions(MemoryFiles):
    async def read(self, file_id: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        end = self._files[file_id][0].bytes if end is None else end
        while start < end:
            async for piece in super().read(file_id, start, min(end, start + 2**18)):
                yield piece
            start += 2**18


class MixesSpaces(MemoryFiles):
    async def list(self, **options: Any) -> Sequence[FileRecord]:
        found = await super().list(**options)
        return found or await super().list(**options | {"space": "parts"})


class RequiresCursorFile(MemoryFiles):
    async def list(self, *, after: str | None = None, **options: Any) -> Sequence[FileRecord]:
        return (
            []
            if after is not None and after not in self._files
            else await super().list(after=after, **options)
        )


class ExpiresLate(MemoryFiles):
    async def expired(self, now: float) -> Sequence[FileRecord]:
        return [record for record in await super().expired(now) if record.expires_at != now]


class ListsTwenty(MemoryFiles):
    async def list(self, **options: Any) -> Sequence[FileRecord]:
        return (await super().list(**options))[:20]


class FindsHundredExpired(MemoryFiles):
    async def expired(self, now: float) -> Sequence[FileRecord]:
        return (await super().expired(now))[:100]


class SanitisesNames(MemoryFiles):
    async def put(self, chunks: AsyncIterator[bytes], describe: Describe) -> FileRecord:
        def cleaned(size: int) -> FileRecord:
            record = describe(size)
            fields = {name: getattr(record, name) for name in FileRecord.__struct_fields__}
            return FileRecord(**fields | {"filename": Path(record.filename).name})

        return await super().put(chunks, cleaned)


class SleepsInPut(MemoryFiles):
    async def put(self, chunks: AsyncIterator[bytes], describe: Describe) -> FileRecord:
        time.sleep(0.3)  # noqa: ASYNC251
        return await super().put(chunks, describe)


class ReadsWholeFiles(SqliteFiles):
    async def read(self, file_id: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        whole = b"".join([piece async for piece in super().read(file_id, start, end)])
        for place in range(0, len(whole), 2**18):
            yield whole[place : place + 2**18]


class CollectsUploads(SqliteFiles):
    async def put(self, chunks: AsyncIterator[bytes], describe: Describe) -> FileRecord:
        whole = [chunk async for chunk in chunks]

        async def again() -> AsyncIterator[bytes]:
            for chunk in whole:
                yield chunk

        return await super().put(again(), describe)


class KeepsBytesOfCancelledUploads(SqliteFiles):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._own = folder

    async def put(self, chunks: AsyncIterator[bytes], describe: Describe) -> FileRecord:
        draft = self._own / f"draft-{uuid.uuid4().hex}"

        async def copied() -> AsyncIterator[bytes]:
            async for chunk in chunks:
                draft.write_bytes(chunk)
                yield chunk
                await asyncio.sleep(0.01)

        record = await super().put(copied(), describe)
        draft.unlink(missing_ok=True)
        return record


class AcceptsUnknownIds(MemoryFiles):
    async def delete(self, file_id: str) -> None:
        self._files.pop(file_id, None)


class OfKind(FileStoreTests):
    kind: Callable[[Path], MemoryFiles]

    @pytest.fixture
    def open_store(self) -> Callable[[Path], MemoryFiles]:
        return type(self).kind


class TestDropsLastChunk(OfKind):
    kind = DropsLastChunk


class TestOffByOneByte(OfKind):
    kind = OffByOneByte


class TestKeepsPartialUploads(OfKind):
    kind = KeepsPartialUploads


class TestMixesVersions(OfKind):
    kind = MixesVersions


class TestMixesSpaces(OfKind):
    kind = MixesSpaces


class TestRequiresCursorFile(OfKind):
    kind = RequiresCursorFile


class TestExpiresLate(OfKind):
    kind = ExpiresLate


class TestListsTwenty(OfKind):
    kind = ListsTwenty


class TestFindsHundredExpired(OfKind):
    kind = FindsHundredExpired


class TestSanitisesNames(OfKind):
    kind = SanitisesNames


class TestAcceptsUnknownIds(OfKind):
    kind = AcceptsUnknownIds


class TestSleepsInPut(OfKind):
    kind = SleepsInPut


class OfDisk(FileStoreTests):
    kind: type[SqliteFiles]

    @pytest.fixture
    def open_store(self) -> Callable[[Path], SqliteFiles]:
        return type(self).kind

    @pytest.fixture
    def survives_reopening(self) -> bool:
        return True


class TestReadsWholeFiles(OfDisk):
    kind = ReadsWholeFiles


class TestCollectsUploads(OfDisk):
    kind = CollectsUploads


class TestKeepsBytesOfCancelledUploads(OfDisk):
    kind = KeepsBytesOfCancelledUploads


class TestLosesDataOnClose(OfKind):
    kind = MemoryFiles

    @pytest.fixture
    def survives_reopening(self) -> bool:
        return True
