"""A database that is damaged or lost ends the start with one line, and stays as it is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmfw.core.base.errors import ConfigError, StorageDamagedError
from llmfw.core.testing.batch_model import job, line
from llmfw.core.testing.file_model import put, read
from llmfw.core.testing.response_model import response
from llmfw.plugins.store_sqlite.batches import SqliteBatches
from llmfw.plugins.store_sqlite.files import SqliteFiles
from llmfw.plugins.store_sqlite.responses import SqliteResponses

NUM = 300


async def fill_files(store: SqliteFiles) -> None:
    await put(store, "file-1")
    with store._file.changes() as db:
        row = next(db.query("select * from files"))
        db.table("files").insert_all(row | {"id": f"file-{n:05}", "filename": b"x" * 200} for n in range(NUM))


async def fill_batches(store: SqliteBatches) -> None:
    await store.create(job())
    await store.results("batch_1").add([line(n, data=b"r" * 300) for n in range(1, NUM)])


async def fill_responses(store: SqliteResponses) -> None:
    await asyncio.gather(*(store.put(response(f"resp_{n}")) for n in range(NUM)))


KINDS: dict[str, tuple[Callable[[Path], Any], Callable[[Any], Any]]] = {
    "files.db": (SqliteFiles, fill_files),
    "batches.db": (SqliteBatches, fill_batches),
    "responses.db": (lambda folder: SqliteResponses(folder, 2**30), fill_responses),
}


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A database that was used and closed."""
    asyncio.run(used(tmp_path / request.param))
    return tmp_path / request.param


async def used(path: Path) -> None:
    open_store, fill = KINDS[path.name]
    store = open_store(path.parent)
    await fill(store)
    await store.close()


def killed(path: Path) -> Path:
    """Return a copy of a database as it is while it is used, with the latest changes in its -wal file."""

    async def copied() -> None:
        open_store, fill = KINDS[path.name]
        store = open_store(path.parent / "new")
        await fill(store)
        store._db.conn.execute("pragma wal_checkpoint")
        with store._file.changes() as db:
            db.execute("create table latest (number integer)")
        shutil.copytree(path.parent / "new", path.parent / "killed")
        await store.close()

    asyncio.run(copied())
    return path.parent / "killed" / path.name


def refusal(path: Path) -> str:
    """Return the one line that a start is refused with; it must leave everything as it is."""
    before = everything(path.parent)
    with pytest.raises(ConfigError) as found:
        KINDS[path.name][0](path.parent)
    assert everything(path.parent) == before
    assert "\n" not in str(found.value)
    assert path.name in str(found.value)
    return str(found.value)


def everything(folder: Path) -> dict[Path, bytes]:
    """Return the files of a folder, but for what SQLite makes anew each time."""
    found = (each for each in folder.rglob("*") if each.is_file() and not each.name.endswith("-shm"))
    return {each: each.read_bytes() for each in found if each.stat().st_size or each.suffix == ".db"}


def reopen(path: Path) -> None:
    asyncio.run(KINDS[path.name][0](path.parent).close())


def cut_to_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_by_a_page(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


def overwrite(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def overwrite_a_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 4096 // 2 * 4096)
        file.write(os.urandom(4096))


@pytest.mark.parametrize("damage", [cut_to_half, cut_by_a_page, overwrite, overwrite_a_page])
def test_a_damaged_database_refuses_the_start(path: Path, damage: Callable[[Path], None]) -> None:
    copy = path.read_bytes()
    damage(path)
    found = refusal(path)
    assert f"{str(path)!r} is damaged (" in found
    assert "restore a copy" in found
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        (path.parent / name).unlink(missing_ok=True)
    path.write_bytes(copy)
    reopen(path)


@pytest.mark.parametrize("name", ["files.db", "responses.db"])
def test_a_large_damaged_database_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pages of large databases are not checked, so that the damage shows when the store reads them."""
    path = tmp_path / name
    asyncio.run(used(path))
    monkeypatch.setattr("llmfw.plugins.store_sqlite.soundness.SMALL", 0)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))
    assert f"{str(path)!r} is damaged (" in refusal(path)


def test_a_truncated_database_with_changes_is_refused(path: Path) -> None:
    path = killed(path)
    cut_to_half(path)
    assert " is damaged (" in refusal(path)


def test_unmerged_changes_are_read(path: Path) -> None:
    path = killed(path)
    reopen(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("select name from sqlite_schema where name = 'latest'").fetchone()


@pytest.mark.parametrize("other", [*KINDS])
def test_a_database_of_another_kind_is_refused(path: Path, other: str) -> None:
    path.unlink()
    if other == path.name:
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("create table recipes (name text)")
    else:
        asyncio.run(used(path.parent / "other" / other))
        shutil.copy(path.parent / "other" / other, path)
    assert "is a database, but not one of this kind: name another folder" in refusal(path)


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_lost_database_is_refused_until_agreed(path: Path, is_empty: bool) -> None:
    path.unlink()
    if is_empty:
        path.touch()
    assert f"is {'empty' if is_empty else 'missing'}" in refusal(path) or path.name == "files.db"
    shutil.rmtree(path.parent / "files", ignore_errors=True)
    assert (
        f"{path.stem}.lock' next to it says that a server has used it: bring it back, or remove"
        in refusal(path)
    )
    path.with_suffix(".lock").unlink()
    reopen(path)


@pytest.mark.parametrize("is_empty", [False, True])
def test_changes_without_their_database_are_refused(path: Path, is_empty: bool) -> None:
    path = killed(path)
    shutil.rmtree(path.parent / "files", ignore_errors=True)
    path.unlink()
    path.with_suffix(".lock").unlink()
    if is_empty:
        path.touch()
    assert f"'{path.name}-wal' next to it has changes that belong to it" in refusal(path)


def test_a_database_without_its_changes_is_refused(path: Path) -> None:
    path = killed(path)
    path.with_name(f"{path.name}-wal").unlink()
    assert f"{path.name}-wal' is missing, and '{path.name}-shm' says" in refusal(path)
    path.with_name(f"{path.name}-shm").unlink()
    reopen(path)


def test_a_folder_named_like_the_database_is_refused(path: Path) -> None:
    path.unlink()
    path.mkdir()
    assert f"{path.name}' is a folder, and a database of that name is kept there: move it away" in refusal(
        path
    )


async def test_a_damaged_page_loses_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages of a large database are not all checked at start, so the damage shows when one is read."""
    path = tmp_path / "batches.db"
    await used(path)
    monkeypatch.setattr("llmfw.plugins.store_sqlite.soundness.SMALL", 0)
    overwrite_a_page(path)
    store = SqliteBatches(tmp_path)
    assert (await store.get("batch_1")).id == "batch_1"
    with pytest.raises(StorageDamagedError, match=r"batches.db' is damaged \(.*restore a copy") as caught:
        async for _ in store.results("batch_1").lines(failed=False):
            pass
    assert "\n" not in str(caught.value)
    other = job(id="batch_2")
    await store.create(other)
    await store.results("batch_2").add([line(1)])
    assert [lines async for lines in store.results("batch_2").lines(failed=False)]
    assert (await store.get("batch_1")).id == "batch_1"
    await store.close()


async def test_later_damage_is_named(tmp_path: Path) -> None:
    store = SqliteFiles(tmp_path)
    await fill_files(store)
    store._db.conn.execute("pragma wal_checkpoint(truncate)")
    store._db.conn.execute("pragma cache_size = 0")
    with (tmp_path / "files.db").open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom((tmp_path / "files.db").stat().st_size - 4096))
    with pytest.raises(StorageDamagedError, match=r"files.db' is damaged \(.*restore a copy"):
        await read(store, "file-1")
    store._file.close()
    store._statements._thread.shutdown()
    store._disk.shutdown()
