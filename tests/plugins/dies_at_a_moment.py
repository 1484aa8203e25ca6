"""Replaces, or deletes, the file file-1 of a folder, and kills itself at a moment of that.

Run by test_restored_files.py, as `python dies_at_a_moment.py FOLDER MOMENT [delete]`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from llmfw.core.interfaces.file_store import FileRecord
from llmfw.plugins.store_sqlite.contents import Contents, Incoming
from llmfw.plugins.store_sqlite.database import Database
from llmfw.plugins.store_sqlite.files import SqliteFiles
from llmfw.plugins.store_sqlite.removals import Removals

BEFORE = {
    "finish": (Incoming, "finish"),
    "note": (Removals, "note"),
    "publish": (Incoming, "publish"),
    "remove": (Contents, "remove"),
}


async def put(store: SqliteFiles, data: bytes) -> None:
    """Store the file in one chunk. The kit's own `put` would import hypothesis, in each of many processes."""

    async def stream() -> AsyncIterator[bytes]:
        yield data

    about = {"id": "file-1", "filename": "name.jsonl", "purpose": "batch", "created_at": 1}
    await store.put(stream(), lambda size: FileRecord(bytes=size, **about))  # type: ignore[arg-type]


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def dying_changes(*args: Any, **kwargs: Any) -> Iterator[Any]:
    with CHANGES(*args, **kwargs) as db:
        yield db
        die()


CHANGES = Database.changes


async def main(folder: Path, moment: str, *, is_deleting: bool) -> None:
    store = SqliteFiles(folder)
    await put(store, b"old")
    with contextlib.ExitStack() as stack:
        if moment == "commit":
            stack.enter_context(patch.object(Database, "changes", dying_changes))
        elif moment != "clear":
            stack.enter_context(patch.object(*BEFORE[moment], die))
        if is_deleting:
            await store.delete("file-1")
        else:
            await put(store, b"new")
    die()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], is_deleting=sys.argv[3:] == ["delete"]))
