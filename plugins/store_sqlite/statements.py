"""The thread of a store, which runs the store's statements in order, so that the event loop never waits."""

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
"""Seconds that a call waits for another process to release its lock."""


class StatementThread:
    """Runs all work on a database in one thread, in order.

    Args:
        file: the database; `close` closes it.
    """

    def __init__(self, file: Database) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=file.path.name)

    async def run(self, work: Callable[..., ResultT], *args: Any) -> ResultT:
        """Run `work` in the thread; return its result. Retry while another process holds the database's lock.

        Raises:
            StorageError: SQLite or the operating system reported an error.
        """
        until = time.monotonic() + LOCKED_SECONDS
        while True:
            try:
                return await to_the_end(self._thread, work, *args)
            except (sqlite3.Error, OSError) as error:
                # Retry from the end of the queue, so that work that only reads does not wait.
                if code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise explained(error, self._file.path) from error

    def later(self, work: Callable[[], None]) -> None:
        """Run `work` after all work that is queued now. May be called from any thread."""
        self._thread.submit(work)

    async def close(self) -> None:
        """Close the database and the thread after all work that is queued now."""
        await self.run(self._file.close)
        self._thread.shutdown()


async def to_the_end(pool: ThreadPoolExecutor, work: Callable[..., ResultT], *args: Any) -> ResultT:
    """Run `work` in a thread pool; return its result. If cancelled, wait for the end of the work, then raise.

    Otherwise, a cancelled task would clean up while its work is still running.
    """
    future = asyncio.get_running_loop().run_in_executor(pool, work, *args)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()  # mark it as retrieved, so that asyncio does not log it
        raise cancelled
    return future.result()
