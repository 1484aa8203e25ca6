"""Uses the SQLite stores of a folder until it is killed, and prints each thing once it has been acknowledged.

Run by test_store_crashes.py, as `python writes_until_killed.py FOLDER ROUND`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from llmfw.core.interfaces.batch_store import BatchRecord, LineResult
from llmfw.core.interfaces.file_store import FileRecord
from llmfw.plugins.store_sqlite.batches import SqliteBatches
from llmfw.plugins.store_sqlite.files import SqliteFiles

GROUP = 5


def content(name: str) -> bytes:
    """Return the bytes of a file of a name."""
    drawn = random.Random(name)
    return drawn.randbytes(drawn.choice([0, 10, 5_000, 700_000]))


def data(batch_id: str, number: int) -> bytes:
    """Return the result of a line."""
    return b"%s %d" % (batch_id.encode(), number) * 50


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def stream(whole: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(whole), 50_000):
        yield whole[start : start + 50_000]


async def write_files(store: SqliteFiles, task: str) -> None:
    for number in itertools.count():
        id = f"file-{task}-{number:04}"
        for version in range(1 + number % 3):
            name = f"{id}.{version}"

            def describe(size: int, id: str = id, name: str = name) -> FileRecord:
                return FileRecord(id=id, filename=name, purpose="batch", bytes=size, created_at=1)

            await store.put(stream(content(name)), describe)
            say("put", id, version)
        if number % 4:
            say("deleting", id)
            await store.delete(id)
            say("deleted", id)


async def write_batches(store: SqliteBatches, task: str) -> None:
    for number in itertools.count():
        id = f"batch_{task}_{number:04}"
        record = BatchRecord(
            id=id,
            endpoint="/v1/completions",
            input_file_id="file-1",
            completion_window="24h",
            status="in_progress",
            created_at=1,
            expires_at=2,
        )
        await store.create(record)
        say("created", id)
        for line in range(1, 100, GROUP):
            first = max(1, line - GROUP)  # one group again, as who resumes may do
            group = [LineResult(n, n % 7 == 0, data(id, n)) for n in range(first, line + GROUP)]
            await store.results(id).add(group)
            say("added", id, line + GROUP - 1)
        if number % 2:
            fields = {name: getattr(record, name) for name in BatchRecord.__struct_fields__}
            await store.update(BatchRecord(**fields | {"status": "completed"}), expected="in_progress")
            say("ended", id)


async def main(folder: Path, name: str) -> None:
    files, batches = SqliteFiles(folder), SqliteBatches(folder)
    say("ready")
    await asyncio.gather(
        *(write_files(files, f"{name}-{task}") for task in "ab"),
        *(write_batches(batches, f"{name}_{task}") for task in "ab"),
    )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
