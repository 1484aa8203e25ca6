"""A SQLite file that one process owns: opens, locks and migrates it, and runs transactions.

Does not depend on the tables in it.
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
"""Migrates a file from one version to the next."""

BUSY_MS = 250
"""Time in milliseconds that one attempt waits for another process's lock. `StatementThread` retries."""

USED = b"used\n"
"""Content of the lock file once the database exists, so that a later start notices a lost database."""


def bindable(text: str) -> str | bytes:
    """Return a text as a query argument.

    SQLite cannot store a text with lone surrogates. Such a text becomes bytes, which match no text.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def one_of(column: str, values: Collection[str], args: dict[str, Any]) -> str:
    """Return an SQL condition: the column has one of these values. Adds the values to `args`."""
    names = [f"{column}{number}" for number in range(len(values))]
    args.update(zip(names, map(bindable, values), strict=True))
    return f"{column} in ({', '.join(f':{name}' for name in names)})"


class Database:
    """An open SQLite file.

    The file's version, in `PRAGMA user_version`, is the number of migrations that have run. The lock is on a
    separate file, and is released even if the process crashes. The lock does not keep out readers, such as
    the sqlite3 tool. All files are created with permissions for this user only, because they contain users'
    conversations.

    Args:
        path: path of the file; its folder is created.
        application_id: number in the file's header that identifies the kind of database.
        migrations: all migrations there have ever been, oldest first.

    Raises:
        ConfigError: the file is in use by another server, damaged, missing, of another application or of a
            newer version, or cannot be opened. Existing files are left unchanged.

    Attributes:
        path: path of the file.
        db: the database. May be used from any thread, but not concurrently.
    """

    def __init__(self, path: Path, application_id: int, migrations: Sequence[Migration]) -> None:
        self.path = path
        with contextlib.ExitStack() as stack:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = _lock(path)
                stack.callback(os.close, self._lock)
                check_presence(path, was_used=os.fstat(self._lock).st_size > 0)
                # SQLite gives its other files (WAL, shm) the same mode.
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
        """Run the block's statements as one transaction; if the block raises, roll the transaction back.

        Committed changes survive a crash of the process.

        Args:
            synced: wait for the disk, so that this and all earlier transactions survive a power loss, too.

        Raises:
            FileNotFoundError: the file was removed or replaced, so writes to the open file would be lost. Or
                the lock file was removed or replaced, so another server may be using the database.
        """
        for path, identity in self._identities.items():
            if _identity(path) != identity:
                reason = "it was deleted or replaced while the server runs"
                raise FileNotFoundError(errno.ENOENT, reason, str(path))
        connection = self.db.conn
        connection.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
        connection.execute(
            "BEGIN IMMEDIATE"
        )  # another process's lock raises here, before anything has been changed
        try:
            yield self.db
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()  # does nothing if SQLite has already rolled back
            raise

    def count(self, pragma: str) -> int:
        """Return the number that a pragma returns, such as `page_count`."""
        return int(self.db.conn.execute(f"PRAGMA {pragma}").fetchone()[0])

    def shrink(self, num_pages: int = 0) -> None:
        """Return `num_pages` free pages to the file system; 0: all.

        Must not be called inside a transaction.
        """
        # `execute` would stop after the first page.
        self.db.conn.executescript(f"PRAGMA incremental_vacuum({num_pages})")

    def _migrate(self, application_id: int, migrations: Sequence[Migration]) -> None:
        """Set the file's permanent properties, and run the missing migrations in one transaction."""
        if not self.count("page_count"):  # auto_vacuum has an effect only on an empty file
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
    """Return a file's device and inode, which change if the file is replaced; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _lock(path: Path) -> int:
    """Lock the lock file and return its descriptor. Closing the descriptor releases the lock.

    Raises:
        ConfigError: another process has the lock.
    """
    lock = path.with_suffix(".lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(f"{str(path)!r} is in use by another server: name another folder") from None
    return descriptor
