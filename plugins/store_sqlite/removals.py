"""Names of contents that no record has any more, kept in the database until they are off the disk.

A name is noted in the transaction that removes its record. So what a start removes is what the database itself says is
to be removed, and a copy of the database of an earlier day says so only of what was deleted before that day.
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
    """Make the table, as a migration."""
    db.execute("create table removals (content text primary key) without rowid")


class Removals:
    """Notes and carries out removals. Works in the statements' thread.

    Args:
        file: with the table `removals`.
    """

    def __init__(self, file: Database, contents: Contents) -> None:
        self._file = file
        self._contents = contents
        self._done: list[str] = []

    def noted(self) -> Collection[str]:
        """Return the names that are to be removed."""
        return {row[0] for row in self._file.db.execute("select content from removals")}

    def note(self, content: str) -> None:
        """Note a name, within the changes that remove its record."""
        self._file.db.execute("insert or ignore into removals values (?)", [content])

    def carry_out(self, content: str) -> None:
        """Remove the bytes of a name that was noted."""
        if self._contents.remove(content):
            self._done.append(content)
        if len(self._done) >= CLEARED_AT:
            self.clear()

    def clear(self) -> None:
        """Drop the notes of the names that were carried out."""
        if self.drop(self._done):
            self._done.clear()

    def drop(self, contents: Collection[str]) -> bool:
        """Drop the notes of names whose bytes are removed; return whether that is done."""
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
