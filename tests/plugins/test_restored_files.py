"""No start loses a stored file: after a crash, and with a files.db of another day."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from llmfw.core.base.errors import ConfigError, ContentLostError, StorageError
from llmfw.core.testing.file_model import ids, put, read
from llmfw.plugins.store_sqlite import files
from llmfw.plugins.store_sqlite.database import Database
from llmfw.plugins.store_sqlite.files import SqliteFiles

SCRIPT = Path(__file__).with_name("dies_at_a_moment.py")
MOMENTS = ("finish", "note", "commit", "publish", "remove", "clear")
AFTER_COMMIT = ("publish", "remove", "clear")
Log = pytest.LogCaptureFixture


async def store_files(folder: Path, *names: str) -> None:
    store = SqliteFiles(folder)
    for name in names:
        await put(store, name, name.encode())
    await store.close()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "files").iterdir())


async def stored(folder: Path) -> dict[str, bytes]:
    store = SqliteFiles(folder)
    found = {id: await read(store, id) for id in ids(await store.list(limit=99))}
    await store.close()
    return found


def warnings(caplog: Log) -> list[str]:
    """Return the messages that need the operator; another test may have lowered the level of the log."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_an_older_copy_keeps_newer_files(tmp_path: Path, caplog: Log) -> None:
    await store_files(tmp_path, "file-1")
    older = (tmp_path / "files.db").read_bytes()
    await store_files(tmp_path, "file-2", "file-3")
    newest = (tmp_path / "files.db").read_bytes()
    before = names(tmp_path)
    for database, known in ((older, ["file-1"]), (newest, ["file-1", "file-2", "file-3"])):
        (tmp_path / "files.db").write_bytes(database)
        caplog.clear()
        assert await stored(tmp_path) == {id: id.encode() for id in known[::-1]}
        assert names(tmp_path) == before
        assert len(warnings(caplog)) == (database is older)
        if database is older:
            assert f"{tmp_path / 'files'} holds 2 files that files.db does not know" in caplog.text
            assert "bring back the newest one" in caplog.text


async def test_an_older_copy_never_removes_a_reused_id(tmp_path: Path) -> None:
    """The copy is of a moment at which a file was deleted and its bytes were still there."""
    await store_files(tmp_path, "file-1")
    store = SqliteFiles(tmp_path)
    await store.delete("file-1")
    copy = tmp_path / "copy.db"
    with contextlib.closing(sqlite3.connect(copy)) as target:
        store._db.conn.backup(target)
        assert target.execute("select count(*) from removals").fetchone() == (1,)
    await store.close()
    await store_files(tmp_path, "file-1")
    os.replace(copy, tmp_path / "files.db")
    [name] = names(tmp_path)
    assert await stored(tmp_path) == {}
    assert names(tmp_path) == [name]


async def test_lost_contents_are_reported_and_named(tmp_path: Path, caplog: Log) -> None:
    await store_files(tmp_path, "file-1", "file-2", "file-3")
    gone, cut, _ = (tmp_path / "files" / name for name in names(tmp_path))
    gone.unlink()
    cut.write_bytes(b"f")
    store = SqliteFiles(tmp_path)
    assert f"lacks 1 files that files.db knows, such as '{gone.name}'" in caplog.text
    with pytest.raises(ContentLostError, match=rf"{gone.name}' is gone: bring it back"):
        await read(store, "file-1")
    with pytest.raises(ContentLostError, match=rf"{cut.name}' was cut to 1 of its 6 bytes"):
        await read(store, "file-2")
    assert await read(store, "file-3") == b"file-3"
    await store.delete("file-1")
    shutil.rmtree(tmp_path / "files")  # as a disk that is not mounted
    with pytest.raises(StorageError, match="cannot be read or written: No such file") as found:
        await read(store, "file-3")
    assert not isinstance(found.value, ContentLostError)
    await store.delete("file-3")
    await store.close()
    with pytest.raises(ConfigError, match=r"files' is missing, but 'files.db' next to it lists 1 files"):
        SqliteFiles(tmp_path)


def kill_at(folder: Path, *what: str) -> None:
    killed = subprocess.run([sys.executable, str(SCRIPT), str(folder), *what], check=False)
    assert killed.returncode == -signal.SIGKILL


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_during_replacement_leaves_one_version(tmp_path: Path, moment: str, caplog: Log) -> None:
    kill_at(tmp_path, moment)
    assert asyncio.run(stored(tmp_path)) == {"file-1": b"new" if moment in AFTER_COMMIT else b"old"}
    assert len(names(tmp_path)) == 1
    assert warnings(caplog) == []
    with contextlib.closing(sqlite3.connect(tmp_path / "files.db")) as db:
        assert db.execute("select count(*) from removals").fetchone() == (0,)


@pytest.mark.parametrize("moment", ["note", "commit", "remove", "clear"])
def test_a_kill_during_deletion_is_atomic(tmp_path: Path, moment: str) -> None:
    asyncio.run(store_files(tmp_path, "file-2"))
    kill_at(tmp_path, moment, "delete")
    is_there = moment not in AFTER_COMMIT
    assert asyncio.run(stored(tmp_path)) == {"file-2": b"file-2"} | ({"file-1": b"old"} if is_there else {})
    assert len(names(tmp_path)) == 1 + is_there


async def test_a_copied_live_folder_is_usable(tmp_path: Path) -> None:
    store = SqliteFiles(tmp_path / "here")
    await put(store, "file-1", b"data")
    shutil.copytree(tmp_path / "here", tmp_path / "there")  # with the changes that are in files.db-wal alone
    await store.close()
    assert await stored(tmp_path / "there") == {"file-1": b"data"}


async def test_an_old_format_keeps_unknown_files(tmp_path: Path, caplog: Log) -> None:
    Database(tmp_path / "files.db", files.APPLICATION_ID, files.MIGRATIONS[:2]).close()
    (tmp_path / "files").mkdir()
    for name in (".incoming-0123456789abcdef", "file-1", "file-1.0a1b2c3d"):
        (tmp_path / "files" / name).write_text("left")
    assert await stored(tmp_path) == {}
    assert names(tmp_path) == ["file-1", "file-1.0a1b2c3d"]
    assert "holds 2 files that files.db does not know" in caplog.text


async def test_notes_of_removed_files_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfw.plugins.store_sqlite.removals.CLEARED_AT", 3)
    await store_files(tmp_path, *(f"file-{number}" for number in range(8)))
    store = SqliteFiles(tmp_path)
    left = []
    for number in range(8):
        await store.delete(f"file-{number}")
        left.append(len(store._removals.noted()))
    await store.close()
    assert left == [1, 2, 0, 1, 2, 0, 1, 2]
    with contextlib.closing(sqlite3.connect(tmp_path / "files.db")) as db:
        assert db.execute("select count(*) from removals").fetchone() == (0,)
