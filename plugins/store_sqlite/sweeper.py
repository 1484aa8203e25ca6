"""Removes the results of ended batch jobs, in small steps. Other statements can run between the steps."""

from __future__ import annotations

import logging
import sqlite3

from .database import Database
from .statements import StatementThread

logger = logging.getLogger(__name__)

STEP_ROWS = 500
STEP_PAGES = 500

_DELETE = (
    "delete from results where rowid in (select rowid from results where batch = ? order by line limit ?)"
)


class Sweeper:
    """Removes results of ended jobs in the `StatementThread`.

    If the process ends, or the disk is full, the next call of `start` removes the rest. The store calls
    `start` when it opens the database, and whenever a job ends.

    Args:
        file: database with the tables `batches` and `results`.
        statements: thread to run in.
    """

    def __init__(self, file: Database, statements: StatementThread) -> None:
        self._file = file
        self._connection = file.db.conn
        self._statements = statements
        self._running = False  # used only in the statements' thread
        self._stopped = False

    def start(self) -> None:
        """Start removing the results of ended jobs, in the background."""
        self._statements.later(self._begin)

    def stop(self) -> None:
        """Stop after the current step."""
        self._stopped = True

    def _begin(self) -> None:
        if not self._running:
            self._go_on()

    def _go_on(self) -> None:
        try:
            self._running = not self._stopped and (self._delete_some() or self._shrink())
        except sqlite3.Error as error:
            self._running = False
            logger.warning("results of ended jobs cannot be removed from %s now: %s", self._file.path, error)
        if self._running:
            self._statements.later(self._go_on)

    def _delete_some(self) -> bool:
        """Delete some results of the oldest ended job; return whether any job had results left."""
        query = "select number from batches where ended and not swept order by number limit 1"
        row = self._connection.execute(query).fetchone()
        if row is None:
            return False
        with self._file.changes():
            if self._connection.execute(_DELETE, [row[0], STEP_ROWS]).rowcount < STEP_ROWS:
                self._connection.execute("update batches set swept = 1 where number = ?", row)
        return True

    def _shrink(self) -> bool:
        """Return some free pages to the file system; return whether the file shrank."""
        before = self._file.count("freelist_count")
        if before:
            self._file.shrink(STEP_PAGES)
        return before > self._file.count("freelist_count")
