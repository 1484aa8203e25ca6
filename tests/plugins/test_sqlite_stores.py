"""What happens to servers: a full disk, a locked database, another server, an older and a newer llmfw."""

from __future__ import annotations

import asyncio
import resource
import signal
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmfw.core.base.errors import ConfigError, StorageError, StorageFullError
from llmfw.core.interfaces.batch_store import BatchStore
from llmfw.core.interfaces.file_store import FileStore
from llmfw.core.testing.batch_model import counts, job, line, lines
from llmfw.core.testing.file_model import ids, put, read, stream
from llmfw.plugins.store_sqlite import batches, files, statements
from llmfw.plugins.store_sqlite.batches import SqliteBatches
from llmfw.plugins.store_sqlite.files import SqliteFiles

MIB = 2**20
STORES: Any = pytest.mark.parametrize(
    ("kind", "name", "module"),
    [(SqliteFiles, "files.db", files), (SqliteBatches, "batches.db", batches)],
    ids=["files", "batches"],
)


def contents(folder: Path) -> list[str]:
    """Return the ids of the files that are there, and passing names."""
    names = (path.name for path in (folder / "files").iterdir())
    return sorted(name if name.startswith(".") else name.partition(".")[0] for name in names)


@pytest.fixture
async def files_in(tmp_path: Path) -> AsyncIterator[FileStore]:
    store = SqliteFiles(tmp_path)
    yield store
    await store.close()


@pytest.fixture
async def batches_in(tmp_path: Path) -> AsyncIterator[BatchStore]:
    store = SqliteBatches(tmp_path)
    yield store
    await store.close()


async def test_the_folder_has_one_copy_per_file(files_in: FileStore, tmp_path: Path) -> None:
    for number in range(3):
        await put(files_in, "file-1", b"%d" % number)
        await put(files_in, f"file-{number}", b"x")
    await files_in.delete("file-2")
    assert contents(tmp_path) == ["file-0", "file-1"]


async def test_an_aborted_upload_leaves_no_temporary_file(files_in: FileStore, tmp_path: Path) -> None:
    def describe(size: int) -> Any:
        assert len(contents(tmp_path)) == 1  # it is being written
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        await files_in.put(stream(b"x" * MIB), describe)
    assert contents(tmp_path) == []


async def test_client_names_cannot_leave_the_folder(files_in: FileStore, tmp_path: Path) -> None:
    await put(files_in, "file-1", filename="../../outside")
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        await put(files_in, "../outside")
    assert contents(tmp_path) == ["file-1"]
    assert not (tmp_path / "outside").exists()


async def with_one_file(folder: Path) -> None:
    store = SqliteFiles(folder)
    await put(store, "file-1")
    await store.close()


@pytest.mark.parametrize("is_empty", [False, True])
def test_unknown_files_are_never_removed(tmp_path: Path, is_empty: bool) -> None:
    (tmp_path / "files").mkdir()
    if is_empty:
        (tmp_path / "files.db").touch()
    (tmp_path / "files" / "thesis.txt").write_text("mine")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"database 'files.db' next to it is missing or empty"):
            SqliteFiles(tmp_path)
    assert (tmp_path / "files" / "thesis.txt").read_text() == "mine"


def test_other_users_cannot_read_stored_files(tmp_path: Path) -> None:
    asyncio.run(with_one_file(tmp_path / "new"))
    found = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert len(found) >= 4
    assert all(path.stat().st_mode & 0o077 == 0 for path in found)


@pytest.mark.parametrize("end", ["db", "lock"])
@pytest.mark.parametrize("is_replaced", [False, True])
async def test_writes_to_a_deleted_database_are_refused(
    files_in: FileStore, batches_in: BatchStore, tmp_path: Path, is_replaced: bool, end: str
) -> None:
    for name in (f"files.{end}", f"batches.{end}"):
        (tmp_path / name).unlink()
        if is_replaced:
            (tmp_path / name).touch()
    with pytest.raises(StorageError, match=rf"files\.{end}.*deleted or replaced"):
        await put(files_in, "file-1", b"x")
    with pytest.raises(StorageError, match=rf"batches\.{end}.*deleted or replaced"):
        await batches_in.create(job())


@STORES
def test_a_store_requires_a_folder(kind: type[FileStore], name: str, module: Any) -> None:
    with pytest.raises(ConfigError, match="--storage DIR"):
        kind(None)


@STORES
@pytest.mark.parametrize("below", [".", "sub"])
def test_a_folder_that_is_a_file_is_refused(
    kind: type[FileStore], name: str, module: Any, tmp_path: Path, below: str
) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    with pytest.raises(ConfigError, match=rf"{name}' cannot be used as storage: .*name another folder$"):
        kind(tmp_path / "notes.txt" / below)


@STORES
async def test_a_folder_in_use_is_refused(
    kind: type[FileStore], name: str, module: Any, tmp_path: Path
) -> None:
    store = kind(tmp_path)
    with pytest.raises(ConfigError, match=rf"{name}' is in use by another server"):
        kind(tmp_path)
    await store.close()
    await kind(tmp_path).close()


@STORES
async def test_newer_folders_are_refused_and_older_migrated(
    kind: type[FileStore], name: str, module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kind(tmp_path).close()
    known = len(module.MIGRATIONS)
    newer = (*module.MIGRATIONS, lambda db: db.table("note").create({"text": str}))
    with monkeypatch.context() as patch:
        patch.setattr(module, "MIGRATIONS", newer)
        await kind(tmp_path).close()
    with pytest.raises(
        ConfigError, match=rf"format {known + 1}; this version of llmfw reads up to {known}: use"
    ):
        kind(tmp_path)


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], sqlite3.Connection]]:
    """A function that holds a database's lock from another connection, for longer than a store waits."""
    monkeypatch.setattr(statements, "LOCKED_SECONDS", 0.5)
    others: list[sqlite3.Connection] = []

    def lock(name: str) -> sqlite3.Connection:
        others.append(sqlite3.connect(tmp_path / name, isolation_level=None))
        others[-1].execute("begin immediate")
        return others[-1]

    yield lock
    for other in others:
        other.close()


async def test_files_wait_for_locks_and_name_them(
    files_in: FileStore, locked: Callable[[str], sqlite3.Connection], tmp_path: Path
) -> None:
    await put(files_in, "file-1")
    other = locked("files.db")
    for call in (lambda: put(files_in, "file-2"), lambda: files_in.delete("file-1")):
        with pytest.raises(
            StorageError, match=r"files.db' is locked by another process.*end that transaction"
        ):
            await call()
    assert ids(await files_in.list(limit=9)) == contents(tmp_path) == ["file-1"]
    waiting = asyncio.create_task(put(files_in, "file-2"))
    await asyncio.sleep(0.1)
    assert await read(files_in, "file-1") == b"data"  # who reads does not wait
    other.rollback()
    await waiting
    assert await read(files_in, "file-2") == b"data"


async def test_batches_wait_for_locks_and_name_them(
    batches_in: BatchStore, locked: Callable[[str], sqlite3.Connection]
) -> None:
    await batches_in.create(job())
    other = locked("batches.db")
    for call in (
        lambda: batches_in.create(job("batch_2")),
        lambda: batches_in.update(job(status="failed"), expected="in_progress"),
        lambda: batches_in.results("batch_1").add([line(1)]),
    ):
        with pytest.raises(StorageError, match=r"batches.db' is locked by another process"):
            await call()
    assert [*await batches_in.list(limit=9)] == [job()]
    other.rollback()
    await batches_in.results("batch_1").add([line(1)])
    assert await counts(batches_in) == (1, 0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for 4 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a tmpfs can be mounted by root alone")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("kind", [SqliteFiles, SqliteBatches])
def test_a_full_disk_refuses_the_start(small_disk: Path, kind: type[FileStore]) -> None:
    fill(small_disk)
    with pytest.raises(
        ConfigError, match=r"cannot be used as storage: .*no room left on its disk; make room"
    ):
        kind(small_disk)


@pytest.mark.parametrize("was_used", [False, True])
@pytest.mark.parametrize("kind", [SqliteFiles, SqliteBatches])
def test_a_read_only_folder_is_refused(small_disk: Path, kind: type[FileStore], was_used: bool) -> None:
    if was_used:
        asyncio.run(kind(small_disk).close())
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(
        ConfigError, match=r"cannot be used as storage: .*let the server's user write to the folder"
    ):
        kind(small_disk)


async def test_full_disks_refuse_files_until_space_returns(small_disk: Path) -> None:
    store = SqliteFiles(small_disk)
    await put(store, "file-1", b"a" * MIB)
    with pytest.raises(StorageFullError, match="no room left"):
        await put(store, "file-2", b"b" * 8 * MIB)
    assert contents(small_disk) == ["file-1"]
    (small_disk / "ballast").write_bytes(b"x" * 2 * MIB)
    with pytest.raises(StorageFullError):
        await put(store, "file-1", b"c" * 2 * MIB)
    (small_disk / "ballast").unlink()
    await put(store, "file-2", b"b" * MIB)
    assert await read(store, "file-1") == b"a" * MIB
    assert contents(small_disk) == ["file-1", "file-2"]
    await store.close()


async def test_on_a_full_disk_files_can_be_deleted(small_disk: Path) -> None:
    store = SqliteFiles(small_disk)
    await put(store, "file-1", b"a" * MIB)
    fill(small_disk)
    await store.delete("file-1")
    await put(store, "file-2", b"b" * (MIB // 2))
    assert contents(small_disk) == ["file-2"]
    await store.close()


def fill(disk: Path) -> None:
    with open(disk / "ballast", "wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(b"x" * 4096)
        except OSError:
            return


async def test_full_disks_refuse_results_until_space_returns(small_disk: Path) -> None:
    store = SqliteBatches(small_disk)
    await store.create(job())
    (small_disk / "ballast").write_bytes(b"x" * MIB)
    added = 0

    async def add(until: int) -> None:
        nonlocal added
        while added < until:
            group = [line(n, data=b"r" * 1000) for n in range(added + 1, added + 11)]
            await store.results("batch_1").add(group)
            added += 10

    with pytest.raises(StorageFullError, match=r"batches.db': "):
        await add(until=10_000)
    assert 0 < added == sum(await counts(store)) == len(await store.results("batch_1").done())
    (small_disk / "ballast").unlink()
    await add(until=added + 10)
    assert await counts(store) == (added, 0)
    await store.close()
    store = SqliteBatches(small_disk)
    assert [*await lines(store)] == [b"r" * 1000] * added
    await store.close()


@pytest.fixture
def no_large_files() -> Iterator[None]:
    """No file can be written beyond 2 MiB."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


async def test_a_file_past_the_system_limit_is_refused(
    files_in: FileStore, tmp_path: Path, no_large_files: None
) -> None:
    with pytest.raises(StorageFullError, match="no room left"):
        await put(files_in, "file-1", b"a" * 3 * MIB)
    assert contents(tmp_path) == []
    await put(files_in, "file-1", b"a" * MIB)


async def test_a_full_database_accepts_results_after_growing(
    batches_in: SqliteBatches,
) -> None:
    await batches_in.create(job())
    batches_in._db.execute("pragma max_page_count = 40")
    large = [line(n, data=b"r" * 1000) for n in range(1, 201)]
    with pytest.raises(StorageFullError):
        await batches_in.results("batch_1").add(large)
    assert await counts(batches_in) == (0, 0)
    batches_in._db.execute("pragma max_page_count = 10000")
    await batches_in.results("batch_1").add(large)
    assert await counts(batches_in) == (200, 0)


async def test_an_ended_job_s_space_is_freed(tmp_path: Path) -> None:
    """Also if the server ends meanwhile."""
    store = SqliteBatches(tmp_path)
    for number in (1, 2):
        await store.create(job(f"batch_{number}"))
    await store.results("batch_1").add([line(n, data=b"r" * 2000) for n in range(1, 3001)])
    await store.update(job(status="completed"), expected="in_progress")
    await store.results("batch_2").add([line(1)])
    await store.close()
    assert (tmp_path / "batches.db").stat().st_size > 4 * MIB
    store = SqliteBatches(tmp_path)
    for _ in range(100):  # others have their turn between the steps
        assert [*await lines(store, "batch_2")] == [line(1).data]
    await store.close()
    assert (tmp_path / "batches.db").stat().st_size < MIB
