"""A SQLite file of one schema, owned by one process: opened, brought up to date, locked, changed.

Knows nothing of what is in the tables.
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
"""Brings a file of one version to the next."""

BUSY_MS = 250
"""For how long one attempt waits for a lock that another process holds. `StatementThread` makes many."""

USED = b"used\n"
"""In the lock file once there is a database, so that its loss is found."""


def bindable(text: str) -> str | bytes:
    """Return what stands for a text in a query: bytes, which equal no text, for one that SQLite cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def one_of(column: str, values: Collection[str], args: dict[str, Any]) -> str:
    """Return the condition that a column has one of some values, and add these to a query's arguments."""
    names = [f"{column}{number}" for number in range(len(values))]
    args.update(zip(names, map(bindable, values), strict=True))
    return f"{column} in ({', '.join(f':{name}' for name in names)})"


class Database:
    """An open file.

    Its version is in `PRAGMA user_version`: how many of the migrations it has had. The lock is on a file beside it
    and ends with the process, however that ends; readers such as the sqlite3 tool are not kept out. What is made here
    is for this user alone: the file has what people said.

    Args:
        path: of the file; its folder is made.
        application_id: says in the file's head whose it is.
        migrations: all that ever were, the oldest first.

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
        """Close the file and let others have it."""
        self.db.conn.close()
        os.close(self._lock)

    @contextlib.contextmanager
    def changes(self, *, synced: bool = False) -> Iterator[sqlite_utils.Database]:
        """Make changes together: after the block all of them are there, or (with an exception) none.

        They survive a crash of the process.

        Args:
            synced: they, and all before them, survive a loss of power, too; it waits for the disk.

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
        """Return the number that a pragma tells."""
        return int(self.db.conn.execute(f"PRAGMA {pragma}").fetchone()[0])

    def shrink(self, num_pages: int = 0) -> None:
        """Give free pages back to the file system: so many, or all; not within changes."""
        # execute() would stop after the first page
        self.db.conn.executescript(f"PRAGMA incremental_vacuum({num_pages})")

    def _migrate(self, application_id: int, migrations: Sequence[Migration]) -> None:
        """Set what is the file's for ever, and run the migrations that it lacks: all of them, or none."""
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
    """Return what tells a file from one that is made in its place; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _lock(path: Path) -> int:
    """Return the descriptor of the lock file, locked; whoever closes it gives the lock up."""
    lock = path.with_suffix(".lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(f"{str(path)!r} is in use by another server: name another folder") from None
    return descriptor
