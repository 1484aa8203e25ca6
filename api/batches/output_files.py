"""Writes a job's results from the store into the files that clients read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from llmfw.core.interfaces.batch_store import BatchRecord, BatchResults, BatchUsage
from llmfw.core.interfaces.file_store import FileRecord, FileStore

from .input_lines import SLICE_S
from .usage import UsageSum

PURPOSE = "batch_output"


async def write_files(record: BatchRecord, results: BatchResults, files: FileStore) -> BatchUsage:
    """Write a job's files, except empty ones; return its token usage. Replaces files of an earlier attempt.

    Args:
        record: the job's record, with the ids of its files and the counts of its results.

    Raises:
        StorageError: the files cannot be written now.
    """
    usage = UsageSum()
    if record.num_completed and record.output_file_id is not None:
        await files.put(
            _chunks(results, False, usage), _RecordOfSize(record, record.output_file_id, "output")
        )
    if record.num_failed and record.error_file_id is not None:
        await files.put(_chunks(results, True, None), _RecordOfSize(record, record.error_file_id, "error"))
    return usage.total()


async def _chunks(results: BatchResults, failed: bool, usage: UsageSum | None) -> AsyncIterator[bytes]:
    until = time.perf_counter() + SLICE_S
    async for lines in results.lines(failed=failed):
        for line in lines:
            if usage is not None:
                usage.add(line)
            if time.perf_counter() > until:
                await asyncio.sleep(0)
                until = time.perf_counter() + SLICE_S
        yield b"".join([line + b"\n" for line in lines])


class _RecordOfSize:
    """Callback of `FileStore.put` that takes a file's size and returns the file's record."""

    def __init__(self, record: BatchRecord, file_id: str, kind: str) -> None:
        self._record = record
        self._file_id = file_id
        self._kind = kind

    def __call__(self, size: int) -> FileRecord:
        now, after = int(time.time()), self._record.output_expires_after
        return FileRecord(
            id=self._file_id,
            filename=f"{self._record.id}_{self._kind}.jsonl",
            purpose=PURPOSE,
            bytes=size,
            created_at=now,
            expires_at=None if after is None else now + after,
            tenant=self._record.tenant,
        )
