"""Tracks contents without a record in the database until they are removed from the disk.

A name is noted in the transaction that removes its record. So a start removes only contents that the database itself
marks as removed. An older copy of the database marks only contents that were deleted before the copy.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection

import sqlite_utils

from .contents import Contents
from .database import Database

logger = logging.getLogger(__name__)

CLEARED_AT = 100  # notes of names that are off the disk; clearing them waits for the disk


def create_removals(db: sqlite_utils.Database) -> None:
    """Create the table, as a migration."""
    db.execute("create table removals (content text primary key) without rowid")


class Removals:
    """Records and carries out removals. Runs in the statements' thread.

    Args:
        file: database with the table `removals`.
    """

    def __init__(self, file: Database, contents: Contents) -> None:
        self._file = file
        self._contents = contents
        self._done: list[str] = []

    def noted(self) -> Collection[str]:
        """Return the names to be removed."""
        return {row[0] for row in self._file.db.execute("select content from removals")}

    def note(self, content: str) -> None:
        """Note a name, in the same transaction as the removal of its record."""
        self._file.db.execute("insert or ignore into removals values (?)", [content])

    def carry_out(self, content: str) -> None:
        """Remove the bytes of a noted name."""
        if self._contents.remove(content):
            self._done.append(content)
        if len(self._done) >= CLEARED_AT:
            self.clear()

    def clear(self) -> None:
        """Drop the notes of removed names."""
        if self.drop(self._done):
            self._done.clear()

    def drop(self, contents: Collection[str]) -> bool:
        """Drop the notes of names whose bytes are removed; return whether that succeeded."""
        if not contents:
            return True
        try:
            self._contents.sync()  # else a loss of power could bring back a file without its note
            with self._file.changes() as db:
                db.conn.executemany("delete from removals where content = ?", [(name,) for name in contents])
        except (OSError, sqlite3.Error) as error:
            logger.warning("%s keeps %d notes of deleted files: %s", self._file.path, len(contents), error)
            return False
        return True
