"""The lines of one job that are in flight: a task each."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable
from typing import Any

from llmfw.api.background.window import Window

ABORTED_AT_ONCE = 50  # before the event loop is given back


class Flight:
    """Lines in flight.

    Args:
        job: the job that the lines count for.

    Attributes:
        failed: future with the first exception of a line's task.
    """

    def __init__(self, window: Window, job: Hashable) -> None:
        self._window = window
        self._job = job
        self._tasks: set[asyncio.Task[None]] = set()
        self._landed = asyncio.Event()
        self._landed.set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a line's work once there is room for it."""
        await self._send(work, alone=False)

    async def send_alone(self, work: Coroutine[Any, Any, None]) -> None:
        """Do a line's work while no other line of any job is in flight, to its end."""
        await self._send(work, alone=True)
        await self.landed()

    async def _send(self, work: Coroutine[Any, Any, None], *, alone: bool) -> None:
        try:
            await self._window.enter(self._job, alone=alone)
        except BaseException:
            work.close()
            raise
        task = asyncio.create_task(work)
        self._tasks.add(task)
        self._landed.clear()
        task.add_done_callback(self._land)

    async def landed(self) -> None:
        """Wait until no line is in flight."""
        await self._landed.wait()

    async def abort(self) -> None:
        """End all lines that are in flight."""
        for i, task in enumerate(list(self._tasks)):
            task.cancel()
            if i % ABORTED_AT_ONCE == ABORTED_AT_ONCE - 1:
                await asyncio.sleep(0)
        await self._landed.wait()
        if self.failed.done():
            self.failed.exception()  # it was looked at
        self.failed.cancel()

    def _land(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._window.leave(self._job)
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)
        if not self._tasks:
            self._landed.set()
