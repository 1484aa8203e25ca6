"""Assigns jobs to processes: finds unfinished jobs, leases, resumes and releases them.

Several processes may share one store; only one process at a time works on a job. `Job` does the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid

from llmfw.core.base.errors import LLMFWError, StorageError
from llmfw.core.interfaces.batch_store import BatchRecord, BatchStore

from .backoff import Backoff
from .blame import CRASH
from .job import Job, accuse
from .job_context import JobContext

logger = logging.getLogger(__name__)

LEASE_S = 30.0
LOOK_S = 10.0  # seconds between searches for abandoned jobs, and between progress reports in the log
STATS_S = 0.25
MAX_JOBS = 1000  # most jobs that this process works on at once; most of them only wait
PAGE = 100


class BatchRunner:
    """Finds, leases and runs jobs until it is closed.

    Args:
        context: objects that all jobs share.
        lease_s: seconds after which another process may take over the jobs of a crashed process.
        look_s: seconds between searches for such jobs; must be less than `lease_s`.
    """

    def __init__(
        self,
        context: JobContext,
        *,
        lease_s: float = LEASE_S,
        look_s: float = LOOK_S,
    ) -> None:
        self._context = context
        self._lease_s = lease_s
        self._look_s = look_s
        self._owner = uuid.uuid4().hex
        self._jobs: dict[str, tuple[Job, asyncio.Task[None]]] = {}
        self._offered: list[str] = []
        self._wake = asyncio.Event()
        self._seen: dict[
            str, tuple[float, int]
        ] = {}  # job → time of the last progress report, number of finished lines then
        self._tasks: list[asyncio.Task[None]] = []
        self._crashed = dict(context.marks.found)
        self._closing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the background tasks, which first resume the jobs that earlier processes left."""
        self._tasks = [
            asyncio.create_task(self._look_for_jobs()),
            asyncio.create_task(self._adapt_windows()),
        ]

    async def close(self) -> None:
        """Abort all lines in flight and release the jobs, so that another process can continue them.

        Further calls wait for the first one.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        jobs = [task for _, task in self._jobs.values()]
        for task in (*self._tasks, *jobs):
            task.cancel()
        left = list(self._jobs)
        await asyncio.gather(*self._tasks, *jobs, return_exceptions=True)
        for batch_id in left:
            with contextlib.suppress(LLMFWError, KeyError):
                await self._context.batches.lease(batch_id, self._owner, 0)
        self._context.marks.close()

    def offer(self, batch_id: str) -> None:
        """Queue a new job, which is started soon."""
        self._offered.append(batch_id)
        self._wake.set()

    def halt(self, batch_id: str) -> None:
        """Make a job stop its lines and read its new status.

        If another process works on the job, that process notices the change by itself.
        """
        if batch_id in self._jobs:
            self._jobs[batch_id][0].halt()

    async def _look_for_jobs(self) -> None:
        backoff = Backoff("jobs", self._context.retry_s)
        next_look = 0.0
        while True:
            try:
                await self._accuse_found()
                while self._offered:
                    await self._take(self._offered[0])
                    self._offered.pop(0)
                if time.monotonic() >= next_look:
                    await self._renew_leases()
                    await self._take_unfinished()
                    next_look = time.monotonic() + self._look_s
            except StorageError as error:
                await backoff.wait(error)
                continue
            except Exception:
                logger.exception("The batch runner could not look for jobs")
                next_look = time.monotonic() + self._look_s
            backoff.reset()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, next_look - time.monotonic())):
                    await self._wake.wait()
            self._wake.clear()

    async def _accuse_found(self) -> None:
        """Add points (see `blame`) to the lines that dead processes were working on.

        Call this before taking any job.
        """
        while self._crashed:
            batch_id, lines = next(iter(self._crashed.items()))
            await accuse(self._context.batches, batch_id, lines, CRASH)
            logger.warning(
                "The last server died while it worked on batch %s, lines %s", batch_id, sorted(lines)
            )
            del self._crashed[batch_id]

    async def _adapt_windows(self) -> None:
        """Keep adapting the limits on lines in flight to the lengths of the engines' queues."""
        while True:
            await asyncio.sleep(STATS_S)
            await self._context.windows.look()

    async def _take_unfinished(self) -> None:
        """Take the unfinished jobs that no process works on, oldest first."""
        for record in reversed(await unfinished(self._context.batches)):
            if await self._take(record.id):
                num_done = record.num_completed + record.num_failed
                logger.info(
                    "Batch %s is taken up: %s, %d of %d lines",
                    *(record.id, record.status, num_done, record.num_total),
                )

    async def _take(self, batch_id: str) -> bool:
        """Lease a job and start to work on it; return whether that was possible."""
        if batch_id in self._jobs or len(self._jobs) >= MAX_JOBS:
            return False
        try:
            if not await self._context.batches.lease(batch_id, self._owner, self._lease_s):
                return False
            job = Job(batch_id, self._context)
        except KeyError:  # the job has ended or does not exist
            return False
        task = asyncio.create_task(self._work(job))
        self._jobs[batch_id] = job, task
        return True

    async def _work(self, job: Job) -> None:
        try:
            await job.work()
        finally:
            del self._jobs[job.id]
            self._seen.pop(job.id, None)

    async def _renew_leases(self) -> None:
        """Renew the leases, and report the progress of jobs.

        Stops jobs that another process has taken over. Halts jobs that another process has cancelled.
        """
        for batch_id, (job, task) in list(self._jobs.items()):
            try:
                if not await self._context.batches.lease(batch_id, self._owner, self._lease_s):
                    logger.warning("Batch %s was taken over by another server", batch_id)
                    task.cancel()
                    continue
                record = await self._context.batches.get(batch_id)
            except KeyError:
                continue  # the job has ended or does not exist; its task notices that by itself
            if record.status == "cancelling":
                job.halt()
            elif record.status == "in_progress":
                self._report(record)

    def _report(self, record: BatchRecord) -> None:
        """Log the progress of a job."""
        now, num_done = time.monotonic(), record.num_completed + record.num_failed
        before, num_before = self._seen.get(record.id, (now, num_done))
        self._seen[record.id] = now, num_done
        rate = f", {(num_done - num_before) / (now - before):.1f} lines/s" if now > before else ""
        logger.info(
            "Batch %s: %d of %d lines, %d failed%s",
            *(record.id, num_done, record.num_total, record.num_failed, rate),
        )


async def unfinished(batches: BatchStore) -> list[BatchRecord]:
    """Return all jobs that have not ended, newest first."""
    found: list[BatchRecord] = []
    while page := await batches.list(after=found[-1].id if found else None, limit=PAGE, unfinished=True):
        found += page
    return found
