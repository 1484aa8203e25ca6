"""Removes the results of ended jobs, in steps between which others have their turn."""

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
    """Works in the statements' thread. What it leaves, because the process ends or the disk is full, comes later.

    Args:
        file: with the tables `batches` and `results`.
    """

    def __init__(self, file: Database, statements: StatementThread) -> None:
        self._file = file
        self._connection = file.db.conn
        self._statements = statements
        self._running = False  # belongs to the statements' thread
        self._stopped = False

    def start(self) -> None:
        """Remove what is to be removed now. Returns at once."""
        self._statements.later(self._begin)

    def stop(self) -> None:
        """Take no further step."""
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
        """Return whether there was something to delete."""
        query = "select number from batches where ended and not swept order by number limit 1"
        row = self._connection.execute(query).fetchone()
        if row is None:
            return False
        with self._file.changes():
            if self._connection.execute(_DELETE, [row[0], STEP_ROWS]).rowcount < STEP_ROWS:
                self._connection.execute("update batches set swept = 1 where number = ?", row)
        return True

    def _shrink(self) -> bool:
        """Return whether there was room to give back."""
        before = self._file.count("freelist_count")
        if before:
            self._file.shrink(STEP_PAGES)
        return before > self._file.count("freelist_count")
