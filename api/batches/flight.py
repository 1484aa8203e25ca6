"""Runs lines of one job concurrently, one task per line. A line is in flight until its task has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable
from typing import Any

from llmfw.api.background.tasks import self_cancelled
from llmfw.api.background.window import Window

ABORTED_AT_ONCE = 50  # tasks to cancel before yielding to the event loop


class Flight:
    """The lines of one job that are in flight.

    `LineRun` creates a flight in the job's task, sends lines, watches `failed`, and must call `abort` at the end.

    Args:
        window: limit on the lines in flight of all jobs of the model.
        job: key of the job in `window`.

    Attributes:
        failed: future that receives the first exception of a line's task.
    """

    def __init__(self, window: Window, job: Hashable) -> None:
        self._window = window
        self._job = job
        self._tasks: set[asyncio.Task[None]] = set()
        self._landed = asyncio.Event()
        self._landed.set()
        self._is_aborting = False
        self._owner = asyncio.current_task()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_ending(self) -> bool:
        """Whether llmfw cancels the lines: by `abort`, or because all tasks of the process are cancelled."""
        return self._is_aborting or (self._owner is not None and self._owner.cancelling() > 0)

    async def send(self, work: Coroutine[Any, Any, None]) -> None:
        """Start the task of a line once the window admits it."""
        await self._send(work, alone=False)

    async def send_alone(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a line to its end while no other line of any job of the model is in flight."""
        await self._send(work, alone=True)
        await self.wait_until_landed()

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

    async def wait_until_landed(self) -> None:
        """Wait until no line is in flight."""
        await self._landed.wait()

    async def abort(self) -> None:
        """Cancel all lines in flight, and wait until they have ended."""
        self._is_aborting, self._owner = True, None  # the owner's frames may refer to this object
        for i, task in enumerate(list(self._tasks)):
            task.cancel()
            if i % ABORTED_AT_ONCE == ABORTED_AT_ONCE - 1:
                await asyncio.sleep(0)
        await self._landed.wait()
        if self.failed.done():
            self.failed.exception()  # marks the error as retrieved
        self.failed.cancel()

    def _land(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._window.leave(self._job)
        error = self._failure_of(task)
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)
        if not self._tasks:
            self._landed.set()

    def _failure_of(self, task: asyncio.Task[None]) -> BaseException | None:
        """Return the reason why a line's task has no result; None: it has one, or was aborted."""
        if not task.cancelled():
            return task.exception()
        # Without this error, the line would be missing in the results of a job that is called completed.
        return None if self.is_ending else self_cancelled()
