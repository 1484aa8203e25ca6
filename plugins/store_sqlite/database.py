"""A SQLite file of one schema, owned by one process: opens, migrates, locks and changes it.

Knows nothing of the tables' contents.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import sqlite_utils

from llmfw.core import ConfigError

from .failures import refusal
from .soundness import check_contents, check_presence

Migration = Callable[[sqlite_utils.Database], None]
"""Upgrades a file by one version."""

BUSY_MS = 250
"""Milliseconds that one attempt waits for another process's lock. `StatementThread` makes many attempts."""

USED = b"used\n"
"""Content of the lock file once a database exists, so that its loss is noticed."""


def bindable(text: str) -> str | bytes:
    """Return a text as a query argument; for one that SQLite cannot hold, bytes that equal no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def one_of(column: str, values: Collection[str], args: dict[str, Any]) -> str:
    """Return the condition that a column has one of some values, and add these to the query's arguments."""
    names = [f"{column}{number}" for number in range(len(values))]
    args.update(zip(names, map(bindable, values), strict=True))
    return f"{column} in ({', '.join(f':{name}' for name in names)})"


class Database:
    """An open file.

    Its version is in `PRAGMA user_version`: how many of the migrations it has had. The lock is on a separate file
    and ends with the process, however that ends; readers such as the sqlite3 tool are not kept out. What is made here
    is for this user alone: the file has what people said.

    Args:
        path: path of the file; its folder is created.
        application_id: id in the file's header that identifies the schema.
        migrations: all migrations ever, oldest first.

    Raises:
        ConfigError: another server has it, it is damaged or missing, someone else's or of a newer version, or it cannot be
            opened. Existing files are left unchanged.

    Attributes:
        path: of the file.
        db: the tables. Any one thread at a time may use it.
    """

    def __init__(self, path: Path, application_id: int, migrations: Sequence[Migration]) -> None:
        self.path = path
        with contextlib.ExitStack() as stack:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = _lock(path)
                stack.callback(os.close, self._lock)
                check_presence(path, was_used=os.fstat(self._lock).st_size > 0)
                # SQLite gives its other files this mode too
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
                check_contents(path, application_id, len(migrations))
                connection = sqlite3.connect(path, check_same_thread=False)
                stack.callback(connection.close)
                self._identities = {each: _identity(each) for each in (path, path.with_suffix(".lock"))}
                self.db = sqlite_utils.Database(connection, strict=True, execute_plugins=False)
                self._migrate(application_id, migrations)
                os.pwrite(self._lock, USED, 0)
                connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            except (OSError, sqlite3.Error) as error:
                raise refusal(error, path) from error
            stack.pop_all()

    def close(self) -> None:
        """Close the file and release the lock."""
        self.db.conn.close()
        os.close(self._lock)

    @contextlib.contextmanager
    def changes(self, *, synced: bool = False) -> Iterator[sqlite_utils.Database]:
        """Make changes atomically: after the block all of them exist, or (with an exception) none.

        They survive a crash of the process.

        Args:
            synced: whether these changes, and all earlier ones, also survive a power failure; waits for the disk.

        Raises:
            FileNotFoundError: the file is no longer there, so that what SQLite writes to the open one would be lost; or
                the lock is not, so that another server may have the file.
        """
        for path, identity in self._identities.items():
            if _identity(path) != identity:
                reason = "it was deleted or replaced while the server runs"
                raise FileNotFoundError(errno.ENOENT, reason, str(path))
        connection = self.db.conn
        connection.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
        connection.execute(
            "BEGIN IMMEDIATE"
        )  # a lock of another process is met here, before anything is done
        try:
            yield self.db
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()  # nothing, where SQLite has done it already
            raise

    def count(self, pragma: str) -> int:
        """Return the number that a pragma reports."""
        return int(self.db.conn.execute(f"PRAGMA {pragma}").fetchone()[0])

    def shrink(self, num_pages: int = 0) -> None:
        """Return `num_pages` free pages to the file system, or all if it is 0. Must not be called within `changes`."""
        # execute() would stop after the first page
        self.db.conn.executescript(f"PRAGMA incremental_vacuum({num_pages})")

    def _migrate(self, application_id: int, migrations: Sequence[Migration]) -> None:
        """Set the file's permanent properties, and run the missing migrations: all of them, or none."""
        if not self.count("page_count"):  # later it would change nothing, and yet be written
            self.db.conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self.db.enable_wal()
        done = self.count("user_version")
        if done == len(migrations):
            return
        with self.db.atomic():
            self.db.conn.execute(f"PRAGMA application_id = {application_id}")
            for migrate in migrations[done:]:
                migrate(self.db)
            self.db.conn.execute(f"PRAGMA user_version = {len(migrations)}")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return values that distinguish a file from a new one in its place; None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _lock(path: Path) -> int:
    """Return the descriptor of the locked lock file. Closing it releases the lock."""
    lock = path.with_suffix(".lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(f"{str(path)!r} is in use by another server: name another folder") from None
    return descriptor
