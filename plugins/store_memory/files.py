"""The file store `memory`: keeps bytes in an unnamed temporary file, which is removed with the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

from llmfw.core import ConfigError, Describe, FileRecord, FileStore

from .arena import BLOCK, Arena, Content


class MemoryFiles(FileStore):
    """Keeps the records of files in memory, and their bytes in the system's temporary folder.

    Raises:
        ConfigError: from the constructor: no temporary file can be created.
    """

    def __init__(self, folder: Path | None) -> None:
        self._files: dict[str, tuple[FileRecord, Content]] = {}
        try:
            self._arena = Arena()
        except OSError as error:
            raise ConfigError(f"no temporary file can be made for uploaded files: {error}") from error

    async def put(self, chunks: AsyncIterator[bytes], describe: Describe) -> FileRecord:
        content = self._arena.content()
        waiting: list[bytes] = []
        size = written = 0
        async for chunk in chunks:
            waiting.append(chunk)
            size += len(chunk)
            if size - written >= BLOCK:  # write small chunks together: each write is a round trip to a thread
                await _append(content, b"".join(waiting))
                waiting.clear()
                written = size
        await _append(content, b"".join(waiting))
        record = describe(size)
        self._files[record.id] = record, content
        return record

    async def get(self, file_id: str) -> FileRecord:
        return self._files[file_id][0]

    async def read(self, file_id: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        content = self._files[file_id][1]
        end = content.size if end is None else min(end, content.size)
        while start < end:
            piece = await asyncio.to_thread(content.piece, start, end)
            yield piece
            start += len(piece)

    async def list(
        self,
        *,
        space: str = "files",
        purpose: str | None = None,
        tenants: Collection[str] | None = None,
        after: str | None = None,
        limit: int,
        newest_first: bool = True,
    ) -> Sequence[FileRecord]:
        found = [
            record
            for id, (record, _) in sorted(self._files.items(), reverse=newest_first)
            if record.space == space
            and purpose in (None, record.purpose)
            and (tenants is None or record.tenant in tenants)
            and (after is None or (id < after if newest_first else id > after))
        ]
        return found[:limit]

    async def delete(self, file_id: str) -> None:
        del self._files[file_id]

    async def expired(self, now: float) -> Sequence[FileRecord]:
        records = [record for record, _ in self._files.values()]
        return [record for record in records if record.expires_at is not None and record.expires_at <= now]

    async def close(self) -> None:
        self._files.clear()


async def _append(content: Content, data: bytes) -> None:
    content.room(len(data))
    # If the task is cancelled, the thread still refers to the content, so its blocks are not freed during the
    # write.
    await asyncio.to_thread(content.append, data)
