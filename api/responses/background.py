"""Runs background responses, for which no client waits: one task per response.

A task ends when its response is complete, when it is stopped, or when the server stops. Only some tasks run
at a time, so that thousands of background responses do not delay clients that wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from llmfw.api.background.tasks import innermost
from llmfw.api.background.window import Window
from llmfw.api.text.by_model import ByModel
from llmfw.core.base.errors import OverloadedError, TenantLimitError

from .job import Job

MAX_OPEN = 1000
"""Maximum number of responses that run or are queued."""
MAX_OF_TENANT = MAX_OPEN // 2
"""Maximum number of responses of one tenant that run or are queued, so that there is always room for
others."""
MAX_OPEN_BYTES = 256 * 2**20
"""Maximum size in bytes of the bodies of all responses that run or are queued. One tenant may use half of
it."""
RETRY_S = 10.0
STOP_S = 5.0
"""Seconds that a task gets to end after it was cancelled. Code of a plugin may ignore that."""

logger = logging.getLogger(__name__)


class Background:
    """Background jobs that run or are queued, one task per job.

    The service calls `check` and then `start` for each job. The job's work waits in `turn` before it runs.

    Args:
        max_running: number of sequences that each model's engine runs at once. About half that number of jobs
            of the model run at once: at most the half, plus an eighth of the half or 2, whichever is more.
    """

    def __init__(self, max_running: ByModel[int]) -> None:
        self._running: dict[str, tuple[Job, asyncio.Task[None]]] = {}
        self._sizes: dict[str, int] = {}
        self._windows = max_running.map(lambda count: Window(max(1, count // 2)))

    def check(self, tenant: str, num_bytes: int) -> None:
        """Check that another job can be added now.

        Args:
            tenant: tenant of the job; "" for a client without a key, to which only the server's limits apply.
            num_bytes: size of the job's body, in bytes.

        Raises:
            TenantLimitError: the tenant has reached its limit of jobs or bytes.
            OverloadedError: the server has reached its limit of jobs or bytes.
        """
        own = [id for id, (job, _) in self._running.items() if job.tenant == tenant]
        own_bytes = sum(self._sizes[id] for id in own) + num_bytes
        if tenant and (len(own) >= MAX_OF_TENANT or (own and own_bytes > MAX_OPEN_BYTES // 2)):
            raise TenantLimitError(
                f"{len(own)} background responses are open, with this one {own_bytes} bytes of input; a tenant may have "
                f"{MAX_OF_TENANT} with {MAX_OPEN_BYTES // 2} bytes: wait until some have ended, or cancel them",
                retry_after_s=RETRY_S,
            )
        all_bytes = sum(self._sizes.values()) + num_bytes
        if len(self._running) >= MAX_OPEN or (self._running and all_bytes > MAX_OPEN_BYTES):
            raise OverloadedError(
                f"{len(self._running)} background responses are open, with this one {all_bytes} bytes of input; the "
                f"limits are {MAX_OPEN} and {MAX_OPEN_BYTES}",
                retry_after_s=RETRY_S,
            )

    @asynccontextmanager
    async def turn(self, job: Job) -> AsyncIterator[None]:
        """Wait until a job may run, and count it as running in the `with` block.

        Tenants with fewer running jobs of the model go first. Each model has turns of its own, so that an engine
        that sleeps or restarts does not hold up other models.
        """
        model = job.response.model
        window = self._windows.of(model) if model in self._windows else self._windows.first
        await window.enter(job.tenant)
        try:
            yield
        finally:
            window.leave(job.tenant)

    def start(self, job: Job, num_bytes: int, work: Coroutine[Any, Any, None]) -> None:
        """Start a task for a job's work. The coroutine must not raise."""
        task = asyncio.create_task(work)
        self._running[job.response.id] = job, task
        self._sizes[job.response.id] = num_bytes
        task.add_done_callback(lambda _: self._forget(job.response.id))

    def _forget(self, response_id: str) -> None:
        self._running.pop(response_id, None)
        self._sizes.pop(response_id, None)

    async def stop(self, response_id: str) -> Job | None:
        """Cancel a response's task and wait for it, at most STOP_S; return its job, or None if it has no task."""
        if response_id not in self._running:
            return None
        job, task = self._running[response_id]
        task.cancel()
        await asyncio.wait({task}, timeout=STOP_S)
        if not task.done():
            logger.error(
                "The task of response %s still runs %g s after it was cancelled; it is left alone: %s",
                *(response_id, STOP_S, innermost(task)),
            )
        return job

    async def finished(self) -> None:
        """Wait until no job runs or is queued."""
        while self._running:
            await asyncio.wait([task for _, task in self._running.values()])

    async def close(self) -> list[Job]:
        """Cancel all tasks and wait for them; return their jobs."""
        jobs = await asyncio.gather(*map(self.stop, list(self._running)))
        return [job for job in jobs if job is not None]
