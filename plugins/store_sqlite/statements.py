"""A thread of a store's own: its statements are in order there, and the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from .database import Database
from .failures import code_of, explained

ResultT = TypeVar("ResultT")

LOCKED_SECONDS = 5.0
"""For how long a call waits for a lock of another process."""


class StatementThread:
    """Runs all work on a database, one piece after the other.

    Args:
        file: is closed with the thread.
    """

    def __init__(self, file: Database) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=file.path.name)

    async def run(self, work: Callable[..., ResultT], *args: Any) -> ResultT:
        """Return what work returns. It is done again while another process holds the lock.

        Raises:
            StorageError: SQLite or the system could not do it.
        """
        until = time.monotonic() + LOCKED_SECONDS
        while True:
            try:
                return await to_the_end(self._thread, work, *args)
            except (sqlite3.Error, OSError) as error:
                # Who waits does so at the end of the queue, that it holds up no one who only reads.
                if code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise explained(error, self._file.path) from error

    def later(self, work: Callable[[], None]) -> None:
        """Run work after all that waits now. May be called in any thread."""
        self._thread.submit(work)

    async def close(self) -> None:
        """Close the database after all that waits now."""
        await self.run(self._file.close)
        self._thread.shutdown()


async def to_the_end(pool: ThreadPoolExecutor, work: Callable[..., ResultT], *args: Any) -> ResultT:
    """Return what work returns in a pool. Whoever is cancelled meanwhile is so once the work has ended.

    Without that, who cleans up after a cancelled task would do so while the work still goes on.
    """
    future = asyncio.get_running_loop().run_in_executor(pool, work, *args)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()  # it has been seen
        raise cancelled
    return future.result()
