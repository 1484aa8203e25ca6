"""Checks that a SQLite file is present and undamaged, before llmfw writes to the file.

When a connection that can write is closed, SQLite moves the changes of the `-wal` file into the database (a
checkpoint). A refused file must stay unchanged, so the checks use a read-only connection.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

from llmfw.core import ConfigError

SMALL = 64 * 2**20
"""Largest file, in bytes, whose pages are all checked. A check of 64 MiB takes 0.1 s, or 1 s from disk."""

WAL_HEADER = struct.Struct(">8xI4x2I8x")  # page size, salts
FRAME_HEADER = struct.Struct(">I4x2I8x")  # page number, salts


def beside(path: Path, end: str) -> Path:
    """Return the path of a file that SQLite keeps next to a database; `end` is "wal" or "shm"."""
    return path.with_name(f"{path.name}-{end}")


def how_to_replace(path: Path) -> str:
    """Return instructions for replacing a database that cannot be used, for error messages."""
    wal, shm = beside(path, "wal").name, beside(path, "shm").name
    return (
        f"stop any server, move {path.name!r}, {wal!r} and {shm!r} away, and restore a copy; or move "
        f"{path.with_suffix('.lock').name!r} away as well, to start without what it holds"
    )


def size_of(path: Path) -> int | None:
    """Return a file's size in bytes; None if it does not exist."""
    return path.stat().st_size if path.exists() else None


def check_presence(path: Path, *, was_used: bool) -> None:
    """Refuse a database that is missing, empty or incomplete although a server has used it.

    Otherwise, SQLite would create a new database in its place.

    Args:
        was_used: whether the lock file says that a server has used the database.

    Raises:
        ConfigError: the database or its `-wal` file is lost, or the path is a folder.
    """
    if path.is_dir():
        raise ConfigError(
            f"{str(path)!r} is a folder, and a database of that name is kept there: move it away, or name another folder"
        )
    wal, shm, lock = beside(path, "wal"), beside(path, "shm"), path.with_suffix(".lock")
    size = size_of(path)
    state = "missing" if size is None else "empty"
    if not size and size_of(wal):
        raise ConfigError(
            f"{str(path)!r} is {state}, and {wal.name!r} next to it has changes that belong to it: bring the database "
            f"back, or move {wal.name!r} away to start without what it held"
        )
    if not size and was_used:
        raise ConfigError(
            f"{str(path)!r} is {state}, and {lock.name!r} next to it says that a server has used it: bring it back, or "
            f"remove {lock.name!r} to start without what it held"
        )
    if size and shm.exists() and not wal.exists():
        raise ConfigError(
            f"{str(wal)!r} is missing, and {shm.name!r} says that the last server did not close the database: bring it "
            f"back, or remove {shm.name!r} to start without the latest changes"
        )


def check_contents(path: Path, application_id: int, version: int) -> None:
    """Refuse a database that is damaged, of another kind, or of a newer version.

    Args:
        application_id: expected id in the file's header.
        version: newest version that can be read.

    Raises:
        ConfigError: the database is refused; the message says why.
        sqlite3.Error: the database cannot be read.
    """
    if not size_of(path):
        return
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        _check_kind(connection, path, application_id, version)
        _check_pages(connection, path)


def _check_kind(connection: sqlite3.Connection, path: Path, application_id: int, version: int) -> None:
    found = _number(connection, "user_version")
    is_used = found or _number(connection, "schema_version")
    if _number(connection, "application_id") != application_id and is_used:
        raise ConfigError(f"{str(path)!r} is a database, but not one of this kind: name another folder")
    if found > version:
        raise ConfigError(
            f"{str(path)!r} has the format {found}; this version of llmfw reads up to {version}: "
            "use the version that wrote it, or another folder"
        )


def _check_pages(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a truncated file. If the file is small, also run SQLite's integrity check."""
    size, page_size = path.stat().st_size, _number(connection, "page_size")
    num_pages = _number(connection, "page_count")
    missing = range(size // page_size + 1, num_pages + 1)
    changed = {*_pages_in(beside(path, "wal"))} if missing else set()
    if len(missing) > len(changed) or not changed.issuperset(missing):
        raise ConfigError(
            f"{str(path)!r} is damaged (it was cut to {size} of {num_pages * page_size} bytes): {how_to_replace(path)}"
        )
    if size <= SMALL:
        found = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
        if found != "ok":
            reason = " ".join(found.split())[:200]
            raise ConfigError(f"{str(path)!r} is damaged ({reason}): {how_to_replace(path)}")


def _pages_in(wal: Path) -> Iterator[int]:
    """Yield the numbers of the pages that were written to a `-wal` file since it was last restarted."""
    if not wal.exists():
        return
    with open(wal, "rb") as file:
        head = file.read(WAL_HEADER.size)
        if len(head) < WAL_HEADER.size:
            return
        page_size, *salts = WAL_HEADER.unpack(head)
        while len(frame := file.read(FRAME_HEADER.size)) == FRAME_HEADER.size:
            page, *frame_salts = FRAME_HEADER.unpack(frame)
            if frame_salts == salts:
                yield page
            file.seek(page_size, os.SEEK_CUR)


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
