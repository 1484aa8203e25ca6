"""Responses that are made while no client waits: one task each.

A task ends with its response, when it is stopped, or with the server. Tasks take turns, so that thousands of them leave
the engine to clients that wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from llmfw.api.background.window import Window
from llmfw.core.base.errors import OverloadedError, TenantLimitError

from .job import Job

MAX_OPEN = 1000
"""Responses that run or are queued."""
MAX_OF_TENANT = MAX_OPEN // 2
"""Of one tenant, so that another one always finds room."""
MAX_OPEN_BYTES = 256 * 2**20
"""Of the bodies of all that are open; half of it may be one tenant's."""
RETRY_S = 10.0


class Background:
    """The jobs that run or are queued, each in its task.

    Args:
        num_places: sequences that the engine runs at once; half of them may be these jobs'.
    """

    def __init__(self, num_places: int) -> None:
        self._running: dict[str, tuple[Job, asyncio.Task[None]]] = {}
        self._sizes: dict[str, int] = {}
        self._window = Window(max(1, num_places // 2))

    def check(self, tenant: str, num_bytes: int) -> None:
        """Raise if a tenant, or a client without a key (""), may not add another job now.

        Args:
            num_bytes: of the job's body.

        Raises:
            TenantLimitError: it has half of all that there may be.
            OverloadedError: there are as many as there may be.
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
        """Wait until a job may run; tenants with fewer running jobs go first."""
        await self._window.enter(job.tenant)
        try:
            yield
        finally:
            self._window.leave(job.tenant)

    def start(self, job: Job, num_bytes: int, work: Coroutine[Any, Any, None]) -> None:
        """Run a job's work, a coroutine that lets no exception out."""
        task = asyncio.create_task(work)
        self._running[job.response.id] = job, task
        self._sizes[job.response.id] = num_bytes
        task.add_done_callback(lambda _: self._forget(job.response.id))

    def _forget(self, response_id: str) -> None:
        self._running.pop(response_id, None)
        self._sizes.pop(response_id, None)

    async def stop(self, response_id: str) -> Job | None:
        """End the task of a response, and return its job as it then is; None if it has no task."""
        if response_id not in self._running:
            return None
        job, task = self._running[response_id]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return job

    async def close(self) -> list[Job]:
        """End all tasks, and return their jobs as they then are."""
        jobs = await asyncio.gather(*map(self.stop, list(self._running)))
        return [job for job in jobs if job is not None]
