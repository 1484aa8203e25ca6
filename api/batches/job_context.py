"""Objects that all jobs share."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from llmfw.api.server.limits import BodyLimits
from llmfw.core.interfaces.batch_store import BatchStore
from llmfw.core.interfaces.file_store import FileStore
from llmfw.core.interfaces.tenant_limits import TenantLimits

from .counts import BatchCounts
from .endpoints import Endpoints
from .windows import Windows
from .work_marks import WorkMarks


class LimitedTenants(Protocol):
    """The limits of tenants, by the tenants' names."""

    async def ready(self, tenant: str) -> None:
        """Wait until a tenant's limits let another line start."""

    def noted(self, tenant: str) -> TenantLimits | None:
        """Return the limits that an authenticator has given a tenant; None if there are none."""

    def recall(self, tenant: str, limits: TenantLimits | None) -> None:
        """Give a tenant its earlier limits, unless an authenticator has named it since the start."""


class UnlimitedTenants:
    """Tenants without limits."""

    async def ready(self, tenant: str) -> None:
        """Let a line start at once."""

    def noted(self, tenant: str) -> TenantLimits | None:
        return None

    def recall(self, tenant: str, limits: TenantLimits | None) -> None:
        """Do nothing."""


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that all jobs share.

    Attributes:
        validating: semaphore that limits how many jobs validate their input at once.
        running: semaphore that limits how many jobs run lines at once. Each running job has a piece of its
            input in memory.
        marks: work marks, which show after a crash which lines were worked on.
        tenants: limits of the tenants, which the lines of their jobs wait for.
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
    tenants: LimitedTenants
    limits: BodyLimits
    retry_s: float
    counts: BatchCounts = msgspec.field(default_factory=BatchCounts)
