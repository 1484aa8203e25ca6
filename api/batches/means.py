"""What all jobs share."""

from __future__ import annotations

import asyncio

import msgspec

from llmfw.api.background.window import Window
from llmfw.api.server.limits import BodyLimits
from llmfw.core.interfaces.batch_store import BatchStore
from llmfw.core.interfaces.file_store import FileStore

from .endpoints import Endpoints
from .work_marks import WorkMarks


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What all jobs share.

    Attributes:
        validating: how many may read their input to validate it at once.
        running: how many may run lines at once; each has a piece of its input in memory.
        marks: say after a crash what was being worked on.
        limits: of each line.
        retry_s: how long to wait at first when something fails.
    """

    files: FileStore
    batches: BatchStore
    endpoints: Endpoints
    window: Window
    validating: asyncio.Semaphore
    running: asyncio.Semaphore
    marks: WorkMarks
    limits: BodyLimits
    retry_s: float
