"""Remembers in the database which files must still be removed from disk.

The transaction that deletes a file's record adds a note, the file's name, to the table `removals`.
Afterwards, the bytes are removed, and then the note. When a server starts, it removes only files with a note.
So if an older copy of the database was restored, the server removes only files that were deleted before the
copy was made.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection

import sqlite_utils

from .contents import Contents
from .database import Database

logger = logging.getLogger(__name__)

CLEARED_AT = 100  # number of notes that are deleted together, because deleting them waits for the disk


def create_removals(db: sqlite_utils.Database) -> None:
    """Create the table `removals`. A migration."""
    db.execute("create table removals (content text primary key) without rowid")


class Removals:
    """Notes which files must be removed, and removes them.

    The store calls all methods in its `StatementThread`.

    Args:
        file: database with the table `removals`.
        contents: folder of the files.
    """

    def __init__(self, file: Database, contents: Contents) -> None:
        self._file = file
        self._contents = contents
        self._done: list[str] = []

    def noted(self) -> Collection[str]:
        """Return the noted names, whose files must be removed."""
        return {row[0] for row in self._file.db.execute("select content from removals")}

    def note(self, content: str) -> None:
        """Note a name. Call it in the transaction that deletes the name's record."""
        self._file.db.execute("insert or ignore into removals values (?)", [content])

    def carry_out(self, content: str) -> None:
        """Remove the file of a noted name. Its note is deleted later, by `clear`."""
        if self._contents.remove(content):
            self._done.append(content)
        if len(self._done) >= CLEARED_AT:
            self.clear()

    def clear(self) -> None:
        """Delete the notes of files that have been removed."""
        if self.drop(self._done):
            self._done.clear()

    def drop(self, contents: Collection[str]) -> bool:
        """Delete the notes of removed files, by their names; return whether this succeeded."""
        if not contents:
            return True
        try:
            self._contents.sync()  # otherwise, a power loss could bring back a file whose note is deleted
            with self._file.changes() as db:
                db.conn.executemany("delete from removals where content = ?", [(name,) for name in contents])
        except (OSError, sqlite3.Error) as error:
            logger.warning("%s keeps %d notes of deleted files: %s", self._file.path, len(contents), error)
            return False
        return True
