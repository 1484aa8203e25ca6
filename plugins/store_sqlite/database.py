"""A SQLite file of one schema, owned by one process: opened, brought up to date, locked.

Knows nothing of what is in the tables.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import sqlite_utils

from llmfw.core.errors import ConfigError

Migration = Callable[[sqlite_utils.Database], None]
"""Brings a file of one version to the next."""


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
        ConfigError: another server has it, it is someone else's or of a newer version, or it cannot be opened.

    Attributes:
        db: the tables. Any one thread at a time may use it.
    """

    def __init__(self, path: Path, application_id: int, migrations: Sequence[Migration]) -> None:
        with contextlib.ExitStack() as stack:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = _lock(path)
                stack.callback(os.close, self._lock)
                os.close(
                    os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
                )  # SQLite gives its other files this mode too
                connection = sqlite3.connect(path, check_same_thread=False)
                stack.callback(connection.close)
                self.db = sqlite_utils.Database(connection, strict=True, execute_plugins=False)
                self._check(path, application_id, len(migrations))
                self._migrate(application_id, migrations)
            except (OSError, sqlite3.Error) as error:
                raise ConfigError(f"{str(path)!r} cannot be used as storage: {error}") from error
            stack.pop_all()

    def close(self) -> None:
        """Close the file and let others have it."""
        self.db.conn.close()
        os.close(self._lock)

    def _pragma(self, name: str) -> int:
        return int(self.db.conn.execute(f"PRAGMA {name}").fetchone()[0])

    def _check(self, path: Path, application_id: int, version: int) -> None:
        found = self._pragma("user_version")
        if self._pragma("application_id") != application_id and (found or self.db.table_names()):
            raise ConfigError(f"{str(path)!r} is a database, but not one of this kind: name another folder")
        if found > version:
            raise ConfigError(
                f"{str(path)!r} has the format {found}; this version of llmfw reads up to {version}: "
                "use the version that wrote it, or another folder"
            )

    def _migrate(self, application_id: int, migrations: Sequence[Migration]) -> None:
        """Set what is the file's for ever, and run the migrations that it lacks: all of them, or none."""
        self.db.conn.execute("PRAGMA auto_vacuum = INCREMENTAL")  # holds only if the file is still empty
        self.db.enable_wal()
        self.db.conn.execute("PRAGMA synchronous = NORMAL")  # in WAL: a crash of the process loses nothing
        done = self._pragma("user_version")
        if done == len(migrations):
            return
        with self.db.atomic():
            self.db.conn.execute(f"PRAGMA application_id = {application_id}")
            for migrate in migrations[done:]:
                migrate(self.db)
            self.db.conn.execute(f"PRAGMA user_version = {len(migrations)}")


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
