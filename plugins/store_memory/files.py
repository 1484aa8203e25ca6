"""Files in unnamed temporary files: they take no memory, and are gone with the process, however that ends."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import BinaryIO

from llmfw.core.errors import StorageError, StorageFullError
from llmfw.core.file_store import Describe, FileRecord, FileStore

PIECE = 2**18


class MemoryFiles(FileStore):
    """Keeps what is known of files in memory, and their bytes where the system keeps temporary files."""

    def __init__(self, folder: Path | None) -> None:
        self._records: dict[str, FileRecord] = {}
        self._contents: dict[str, BinaryIO] = {}

    async def put(self, chunks: AsyncIterator[bytes], describe: Describe) -> FileRecord:
        content = await asyncio.to_thread(tempfile.TemporaryFile)
        size = 0
        try:
            async for chunk in chunks:
                await asyncio.to_thread(_write, content, chunk)
                size += len(chunk)
            record = describe(size)
        except BaseException:
            content.close()
            raise
        self._records[record.id] = record
        self._contents[record.id] = content
        return record

    async def get(self, file_id: str) -> FileRecord:
        return self._records[file_id]

    async def read(self, file_id: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        content = self._contents[file_id]
        end = self._records[file_id].bytes if end is None else end
        while start < end and (
            piece := await asyncio.to_thread(os.pread, content.fileno(), min(PIECE, end - start), start)
        ):
            yield piece
            start += len(piece)

    async def list(
        self,
        *,
        space: str = "files",
        purpose: str | None = None,
        after: str | None = None,
        limit: int,
        newest_first: bool = True,
    ) -> Sequence[FileRecord]:
        found = [
            record
            for id, record in sorted(self._records.items(), reverse=newest_first)
            if record.space == space
            and purpose in (None, record.purpose)
            and (after is None or (id < after if newest_first else id > after))
        ]
        return found[:limit]

    async def delete(self, file_id: str) -> None:
        del self._records[file_id]
        del self._contents[file_id]  # closed, and so gone, once no one reads it any more

    async def expired(self, now: float) -> Sequence[FileRecord]:
        return [r for r in self._records.values() if r.expires_at is not None and r.expires_at <= now]

    async def close(self) -> None:
        self._contents.clear()


def _write(content: BinaryIO, chunk: bytes) -> None:
    try:
        content.write(chunk)
        content.flush()
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise (StorageFullError if full else StorageError)(
            f"a temporary file cannot be written: {error}"
        ) from error
