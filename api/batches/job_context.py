"""Objects that all jobs share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from llmfw.api.server.limits import BodyLimits
from llmfw.core.interfaces.batch_store import BatchStore
from llmfw.core.interfaces.file_store import FileStore

from .counts import BatchCounts
from .endpoints import Endpoints
from .windows import Windows
from .work_marks import WorkMarks

Pace = Callable[[str], Awaitable[None]]


async def no_pace(tenant: str) -> None:
    """Let a line start at once: there are no limits of tenants."""


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that all jobs share.

    Attributes:
        validating: semaphore that limits how many jobs validate their input at once.
        running: semaphore that limits how many jobs run lines at once. Each running job has a piece of its
            input in memory.
        marks: work marks, which show after a crash which lines were worked on.
        pace: waits until the limits of a tenant, by its name, let another line start.
        limits: limits on the size and structure of each line.
        windows: limits on the lines in flight.
        counts: counts the jobs and lines that have ended in this process.
        retry_s: seconds to wait before the first retry.
    """

    files: FileStore
    batches: BatchStore
    endpoints: Endpoints
    windows: Windows
    validating: asyncio.Semaphore
    running: asyncio.Semaphore
    marks: WorkMarks
    pace: Pace
    limits: BodyLimits
    retry_s: float
    counts: BatchCounts = msgspec.field(default_factory=BatchCounts)
