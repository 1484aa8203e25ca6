"""Notes in the database of files that have no record any more, kept until their bytes are removed from disk.

A name is noted in the transaction that deletes its record, and a start removes only noted files. So if an
older copy of the database is restored, a start removes only files that had been deleted when the copy was
made.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection

import sqlite_utils

from .contents import Contents
from .database import Database

logger = logging.getLogger(__name__)

CLEARED_AT = 100  # notes of removed files that are cleared together, because clearing waits for the disk


def create_removals(db: sqlite_utils.Database) -> None:
    """Create the table `removals`. A migration."""
    db.execute("create table removals (content text primary key) without rowid")


class Removals:
    """Notes and carries out removals of files. Runs in the `StatementThread`.

    Args:
        file: database with the table `removals`.
        contents: folder of the files.
    """

    def __init__(self, file: Database, contents: Contents) -> None:
        self._file = file
        self._contents = contents
        self._done: list[str] = []

    def noted(self) -> Collection[str]:
        """Return the noted names, whose files are to be removed."""
        return {row[0] for row in self._file.db.execute("select content from removals")}

    def note(self, content: str) -> None:
        """Note a name. Call it in the transaction that deletes the name's record."""
        self._file.db.execute("insert or ignore into removals values (?)", [content])

    def carry_out(self, content: str) -> None:
        """Remove the file of a noted name."""
        if self._contents.remove(content):
            self._done.append(content)
        if len(self._done) >= CLEARED_AT:
            self.clear()

    def clear(self) -> None:
        """Delete the notes of files that have been removed."""
        if self.drop(self._done):
            self._done.clear()

    def drop(self, contents: Collection[str]) -> bool:
        """Delete the notes of these names, whose files have been removed; return whether that succeeded."""
        if not contents:
            return True
        try:
            self._contents.sync()  # otherwise a power loss could bring back a file after its note is deleted
            with self._file.changes() as db:
                db.conn.executemany("delete from removals where content = ?", [(name,) for name in contents])
        except (OSError, sqlite3.Error) as error:
            logger.warning("%s keeps %d notes of deleted files: %s", self._file.path, len(contents), error)
            return False
        return True
