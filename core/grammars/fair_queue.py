"""A queue that serves tenants in turns, so that one tenant's many jobs do not delay another's."""

from __future__ import annotations

from collections import OrderedDict, deque

from .messages import Job


class FairQueue:
    """Waiting jobs: first in, first out within a tenant, round robin among tenants.

    Args:
        limit: maximum number of waiting jobs.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines: OrderedDict[str, deque[Job]] = OrderedDict()  # the tenant whose turn is next comes first
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, job: Job) -> bool:
        """Append a job. Returns whether the queue took it: a full queue does not.

        Exception: a full queue takes a job of a tenant that has fewer jobs than the largest tenant, whose last job `shed`
        then removes.
        """
        if self._size >= self._limit and len(self._lines.get(job.tenant, ())) + 1 >= self._longest():
            return False
        self._lines.setdefault(job.tenant, deque()).append(job)
        self._size += 1
        return True

    def shed(self) -> Job | None:
        """Remove and return the newest job of the tenant with the most jobs, if the queue exceeds its limit."""
        if self._size <= self._limit:
            return None
        line = max(self._lines.values(), key=len)
        return self._taken(line[-1].tenant, line.pop())

    def pop(self) -> Job | None:
        """Remove and return the next job, or None if there is none."""
        if not self._lines:
            return None
        tenant, line = next(iter(self._lines.items()))
        self._lines.move_to_end(tenant)
        return self._taken(tenant, line.popleft())

    def remove(self, job_id: int) -> bool:
        """Remove a job. Returns whether the queue held it."""
        for tenant, line in self._lines.items():
            for job in line:
                if job.id == job_id:
                    line.remove(job)
                    self._taken(tenant, job)
                    return True
        return False

    def _taken(self, tenant: str, job: Job) -> Job:
        self._size -= 1
        if not self._lines[tenant]:
            del self._lines[tenant]
        return job

    def _longest(self) -> int:
        return max(map(len, self._lines.values()), default=0)
