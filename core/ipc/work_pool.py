"""Runs jobs in forked children of other processes, and serves tenants in turns."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from llmfw.core.base.errors import ComponentError, LLMFWError, OverloadedError

from .fair_queue import FairQueue
from .fork_client import ForkClient, UnableError

logger = logging.getLogger(__name__)

T = TypeVar("T")
Use = Callable[[ForkClient], Awaitable[Any]]


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    """A job that waits for a process, and the future of its caller."""

    id: int
    tenant: str
    use: Use
    done: asyncio.Future[Any]


class WorkPool:
    """Processes that run jobs. All methods must be called in one event loop.

    Args:
        command: command that starts a process.
        what: plural noun phrase for the jobs, for messages, such as "images to be decoded".
        size: number of jobs that run at a time, each in a process of its own.
        max_waiting: maximum number of jobs that wait.
    """

    def __init__(self, command: Sequence[str], what: str, *, size: int, max_waiting: int) -> None:
        self._command = command
        self._what = what
        self._size = size
        self._ids = itertools.count(1)
        self._queue = FairQueue[_Waiting](max_waiting)
        self._idle: list[ForkClient] = []
        self._running: dict[asyncio.Task[None], _Waiting] = {}
        self._num_starting = 0
        self._closed = False

    @property
    def idle_pids(self) -> list[int]:
        """Process ids of the processes that wait for a job."""
        return [client.process.pid for client in self._idle]

    async def run(self, use: Callable[[ForkClient], Awaitable[T]], tenant: str = "") -> T:
        """Run a job, and return its result.

        Args:
            use: function that asks a process. If it raises LLMFWError, the process is used again; if it
                raises OSError, EOFError or TimeoutError, the process is ended, because it no longer works
                correctly.
            tenant: tenant of the job; tenants are served in turns.

        Raises:
            OverloadedError: too many jobs wait, the process has ended, or the pool is closed.
            ComponentError: the processes cannot run any job; gives their reason.
            LLMFWError: `use` raised it.
        """
        if self._closed:
            raise OverloadedError("the server is shutting down")
        job = _Waiting(next(self._ids), tenant, use, asyncio.get_running_loop().create_future())
        dropped = self._queue.shed() if self._queue.add(job) else job
        if dropped is not None:
            _fail(dropped, OverloadedError(f"{len(self._queue)} {self._what} wait already; try again later"))
        self._advance()
        try:
            result: T = await job.done
            return result
        finally:
            self._queue.remove(job.id)

    async def close(self) -> None:
        """End the processes. Pending calls of `run` raise OverloadedError."""
        self._closed = True
        while (job := self._queue.pop()) is not None:
            _fail(job, OverloadedError("the server is shutting down"))
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for client in self._idle:
            await client.end()
        self._idle.clear()

    def _advance(self) -> None:
        """Start queued jobs until `size` jobs are running.

        Only one process starts at a time, because loading may be slow, and parallel starts would make it
        slower.
        """
        while self._has_place() and (job := self._queue.pop()) is not None:
            if job.done.done():
                continue
            client = self._idle.pop() if self._idle else None
            self._num_starting += client is None
            task = asyncio.create_task(self._run(job, client))
            self._running[task] = job
            task.add_done_callback(self._ended)

    def _has_place(self) -> bool:
        return len(self._running) < self._size and bool(self._idle or not self._num_starting)

    def _ended(self, task: asyncio.Task[None]) -> None:
        job = self._running.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            known = isinstance(error, LLMFWError)
            if not known:
                logger.error("A job of %s failed", self._what, exc_info=error)
            _fail(job, error if known else OverloadedError(f"the {self._what} failed; try again later"))
        _fail(job, OverloadedError("the server is shutting down"))
        if not self._closed:
            self._advance()

    async def _run(self, job: _Waiting, idle: ForkClient | None) -> None:
        """Run a job, and keep its process for the next one.

        If a process that waited for a job has ended, which it may have done before this job, the job gets a
        new process.

        Args:
            idle: process to use; None: a new one.
        """
        client = idle or await self._started()
        keep = is_again = False
        try:
            await self._until_ready(client)
            keep = True
            result = await job.use(client)
            with suppress(asyncio.InvalidStateError):  # the caller no longer waits
                job.done.set_result(result)
        except UnableError as error:
            keep = False
            raise ComponentError(str(error)) from error
        except (TimeoutError, EOFError, OSError) as error:
            keep = False
            is_again = idle is not None and not isinstance(error, TimeoutError) and not self._closed
            logger.warning("A process for %s ended or hung; the next one gets a new process", self._what)
            if not is_again:
                raise OverloadedError(f"the process for {self._what} ended; try again later") from error
        except asyncio.CancelledError:
            keep = False
            raise
        finally:
            if keep and not self._closed:
                self._idle.append(client)
            else:
                await client.end()
        if is_again:
            self._num_starting += 1
            await self._run(job, None)

    async def _started(self) -> ForkClient:
        try:
            return await ForkClient.start(self._command)
        except BaseException:
            self._num_starting -= 1
            raise

    async def _until_ready(self, client: ForkClient) -> None:
        """Wait until a new process is ready, then let the next process start."""
        if client.is_ready:
            return
        try:
            await client.ready()
        finally:
            self._num_starting -= 1
            if not self._closed:
                self._advance()


def _fail(job: _Waiting, error: BaseException) -> None:
    if not job.done.done():
        job.done.set_exception(error)
