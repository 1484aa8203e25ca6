"""Folders that were written before files, batches and responses belonged to tenants."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmfw.core.interfaces.batch_store import BatchRecord
from llmfw.core.interfaces.file_store import FileRecord
from llmfw.core.interfaces.response_store import ResponseRecord
from llmfw.core.testing.batch_model import job, line, lines
from llmfw.core.testing.file_model import ids, put, read
from llmfw.core.testing.response_model import response
from llmfw.plugins.store_sqlite import batches, files, responses
from llmfw.plugins.store_sqlite.batches import SqliteBatches
from llmfw.plugins.store_sqlite.database import Database
from llmfw.plugins.store_sqlite.files import SqliteFiles
from llmfw.plugins.store_sqlite.responses import SqliteResponses

Fill = Callable[[Any], None]


def write_old(module: Any, path: Path, fill: Fill) -> None:
    """Write a database of the first format."""
    database = Database(path, module.APPLICATION_ID, module.MIGRATIONS[:1])
    with database.changes() as db:
        fill(db)
    database.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("pragma user_version").fetchone() == (1,)
    connection.close()


async def test_files_of_an_old_folder_have_no_tenant(tmp_path: Path) -> None:
    def fill(db: Any) -> None:
        row = {"id": "file-1", "space": "files", "purpose": "batch", "filename": b"a.jsonl", "bytes": 4}
        db.table("files").insert(row | {"created_at": 1, "expires_at": None, "content": "file-1"})

    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "file-1").write_bytes(b"data")
    write_old(files, tmp_path / "files.db", fill)
    store = SqliteFiles(tmp_path)
    expected = FileRecord(id="file-1", filename="a.jsonl", purpose="batch", bytes=4, created_at=1)
    assert await store.get("file-1") == expected
    assert expected.tenant == ""
    await put(store, "file-2", tenant="ann")
    assert ids(await store.list(limit=9, tenants=["ann"])) == ["file-2"]
    assert ids(await store.list(limit=9, tenants=[""])) == ["file-1"]
    assert await read(store, "file-1") == b"data"
    await store.close()


async def test_batches_of_old_folders_keep_their_tenant(tmp_path: Path) -> None:
    def state_of(record: BatchRecord) -> dict[str, Any]:
        data = msgspec.to_builtins(record)
        if not record.tenant:
            del data["tenant"]  # of a version that knew no tenants
        return {
            "id": record.id,
            "status": record.status,
            "ended": 0,
            "swept": 0,
            "record": msgspec.json.encode(data),
        }

    def fill(db: Any) -> None:
        for record in (job("batch_1", tenant="ann"), job("batch_2", tenant="")):
            db.table("batches").insert(state_of(record) | {"num_completed": 1, "num_failed": 0})
        db.table("results").insert({"batch": 1, "line": 1, "failed": 0, "data": line(1).data})

    write_old(batches, tmp_path / "batches.db", fill)
    store = SqliteBatches(tmp_path)
    assert await store.get("batch_1") == job("batch_1", tenant="ann", num_completed=1)
    assert [record.id for record in await store.list(limit=9, tenants=["ann"])] == ["batch_1"]
    assert [record.id for record in await store.list(limit=9, tenants=[""])] == ["batch_2"]
    assert await lines(store, "batch_1") == [line(1).data]
    await store.close()


async def test_responses_of_an_old_folder_have_no_tenant(tmp_path: Path) -> None:
    old = response("resp_1", status="queued")

    def fill(db: Any) -> None:
        row = {name: getattr(old, name) for name in ResponseRecord.__struct_fields__ if name != "tenant"}
        db.table("responses").insert(row | {"root": "resp_1", "size": old.size})
        db.table("conversations").insert({"root": "resp_1", "last_at": 1.0, "size": old.size})

    write_old(responses, tmp_path / "responses.db", fill)
    store = SqliteResponses(tmp_path, 1000)
    assert await store.get("resp_1") == old
    later = response("resp_2", "resp_1", tenant="ann")
    await store.put(later)
    assert [*await store.conversation("resp_2")] == [old, later]
    assert [*await store.unfinished()] == [old]
    await store.close()


@pytest.mark.parametrize(
    ("module", "name", "table"),
    [(files, "files", "files"), (batches, "batches", "batches")],
    ids=["files", "batches"],
)
def test_a_tenant_s_listing_uses_an_index(tmp_path: Path, module: Any, name: str, table: str) -> None:
    database = Database(tmp_path / f"{name}.db", module.APPLICATION_ID, module.MIGRATIONS)
    space = "space = 'files' and " if name == "files" else ""
    query = f"select * from {table} where {space}tenant in ('ann') order by id desc limit 20"
    [*plan] = database.db.conn.execute(f"explain query plan {query}")
    database.close()
    assert "tenant=?" in plan[0][-1]
    assert len(plan) == 1  # nothing is sorted
