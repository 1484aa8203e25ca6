"""Responses that are made while no client waits: one task each.

A task ends with its response, when it is stopped, or with the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from .job import Job


class Background:
    """The jobs that run, each in its task."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[Job, asyncio.Task[None]]] = {}

    def start(self, job: Job, work: Coroutine[Any, Any, None]) -> None:
        """Run a job's work, a coroutine that lets no exception out."""
        task = asyncio.create_task(work)
        self._running[job.response.id] = job, task
        task.add_done_callback(lambda _: self._running.pop(job.response.id, None))

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
