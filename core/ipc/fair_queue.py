"""Queue that serves tenants in turns, so that many jobs of one tenant do not delay the jobs of others."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, Protocol, TypeVar


class Job(Protocol):
    """The attributes of a job that a queue needs: an id, unique in the queue, and a tenant."""

    @property
    def id(self) -> int:
        """The job's id."""

    @property
    def tenant(self) -> str:
        """The job's tenant; "" if it has none."""


JobT = TypeVar("JobT", bound=Job)


class FairQueue(Generic[JobT]):
    """A queue of jobs: round robin among tenants; first in, first out within a tenant.

    Args:
        limit: maximum number of waiting jobs.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines: OrderedDict[str, deque[JobT]] = OrderedDict()  # the next tenant to serve comes first
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, job: JobT) -> bool:
        """Append a job; return False if the queue is full and rejects it.

        A full queue still accepts a job if its tenant would then have fewer jobs than the tenant with the
        most jobs. The caller must then call `shed`, which removes the newest job of the tenant with the most
        jobs.
        """
        if self._size >= self._limit and len(self._lines.get(job.tenant, ())) + 1 >= self._longest():
            return False
        self._lines.setdefault(job.tenant, deque()).append(job)
        self._size += 1
        return True

    def shed(self) -> JobT | None:
        """Remove and return the newest job of the tenant with the most jobs.

        If the queue does not exceed its limit, remove nothing and return None.
        """
        if self._size <= self._limit:
            return None
        line = max(self._lines.values(), key=len)
        return self._taken(line[-1].tenant, line.pop())

    def pop(self) -> JobT | None:
        """Remove and return the next job, or None if there is none."""
        if not self._lines:
            return None
        tenant, line = next(iter(self._lines.items()))
        self._lines.move_to_end(tenant)
        return self._taken(tenant, line.popleft())

    def remove(self, job_id: int) -> bool:
        """Remove a job by id; return whether it was in the queue."""
        for tenant, line in self._lines.items():
            for job in line:
                if job.id == job_id:
                    line.remove(job)
                    self._taken(tenant, job)
                    return True
        return False

    def _taken(self, tenant: str, job: JobT) -> JobT:
        self._size -= 1
        if not self._lines[tenant]:
            del self._lines[tenant]
        return job

    def _longest(self) -> int:
        return max(map(len, self._lines.values()), default=0)
