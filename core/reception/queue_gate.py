"""Which requests may come in while others wait, and how fast those that wait are let in. No tensors, no clock.

A request that is refused is one that nobody has begun: its client, or a router before it, can go elsewhere at once. Only
requests that somebody waits for count, and are refused; those whose grammar is still being compiled wait, too. What was
retracted does not: it was let in.
"""

from __future__ import annotations

import math
from collections import Counter, deque

from ..errors import OverloadedError, TenantLimitError

WINDOW_S = 60.0  # admissions longer ago tell nothing of the rate
MOST_RETRY_S = 60.0


class AdmissionRate:
    """How many requests a second are let in while others wait: what an idle engine could take at once says nothing."""

    def __init__(self) -> None:
        self._since: float | None = None  # when somebody began to wait
        self._admitted: deque[tuple[float, int]] = deque()
        self._num_admitted = 0
        self._last: float | None = None

    def note(self, num_admitted: int, num_waiting: int, now: float) -> None:
        """Take note of a step: so many were let in, and so many wait on."""
        if self._since is not None and num_admitted:
            self._admitted.append((now, num_admitted))
            self._num_admitted += num_admitted
        if not num_waiting:
            self._last = self.per_second(now)
            self._since, self._num_admitted = None, 0
            self._admitted.clear()
        elif self._since is None:
            self._since = now

    def per_second(self, now: float) -> float | None:
        """Return the rate up to the last admission, less once the next one is overdue; None: it is not known."""
        while self._admitted and self._admitted[0][0] < now - WINDOW_S:
            self._num_admitted -= self._admitted.popleft()[1]
        if self._since is None or not self._num_admitted:
            return self._last
        start, count = max(self._since, now - WINDOW_S), self._num_admitted
        seconds = max(self._admitted[-1][0] - start, (now - start) * count / (count + 1))
        return count / seconds if seconds > 0 else self._last

    def seconds_for(self, num_requests: float, now: float) -> float | None:
        """Return in how many seconds so many are let in; None: it is not known."""
        rate = self.per_second(now)
        return num_requests / rate if rate else None


class QueueGate:
    """The requests that wait for the first time, and those of each tenant.

    Args:
        max_requests, max_tokens: that may wait; None: any number. An empty queue takes any prompt.
        max_tenant_requests: of one tenant, waiting and running; those that name no tenant are one.

    Attributes:
        rate: at which requests are let in.
    """

    def __init__(
        self,
        max_requests: int | None = None,
        max_tokens: int | None = None,
        max_tenant_requests: int | None = None,
    ) -> None:
        self.rate = AdmissionRate()
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._max_tenant_requests = max_tenant_requests
        self._waiting: dict[str, int] = {}  # request → tokens of its prompt
        self._num_tokens = 0
        self._tenants: dict[str, str] = {}  # request → tenant, of all that have not ended
        self._num_of: Counter[str] = Counter()

    @property
    def num_waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def awaits(self, request_id: str) -> bool:
        """Return whether a request waits."""
        return request_id in self._waiting

    def check(self, num_tokens: int, tenant: str, now: float) -> None:
        """Raise the error with which a request of so many tokens is refused, if it is.

        Raises:
            TenantLimitError: its tenant has as many requests as one may have.
            OverloadedError: the queue is full.
        """
        most, count = self._max_tenant_requests, self._num_of.get(tenant, 0)
        if most is not None and count >= most:
            whose = f"{tenant!r} has" if tenant else "clients that name no user have"
            raise TenantLimitError(
                f"{whose} {count} requests that wait or run; at most {most} are allowed at once",
                retry_after_s=self._retry_after(1, now),
            )
        waiting = len(self._waiting)
        if self._max_requests is not None and waiting >= self._max_requests:
            raise OverloadedError(
                f"the queue is full: {waiting} requests wait, and at most {self._max_requests} may",
                retry_after_s=self._retry_after(waiting - self._max_requests + 1, now),
            )
        if self._max_tokens is not None and waiting and self._num_tokens + num_tokens > self._max_tokens:
            excess = self._num_tokens + num_tokens - self._max_tokens
            raise OverloadedError(
                f"the queue is full: prompts of {self._num_tokens} tokens wait, and with this one's {num_tokens} it "
                f"were {excess} more than the {self._max_tokens} that may",
                retry_after_s=self._retry_after(excess * waiting / max(1, self._num_tokens), now),
            )

    def enter(self, request_id: str, num_tokens: int, tenant: str) -> None:
        """Let a request wait, which `check` has let pass."""
        self._waiting[request_id] = num_tokens
        self._num_tokens += num_tokens
        self._tenants[request_id] = tenant
        self._num_of[tenant] += 1

    def admit(self, request_id: str) -> bool:
        """Note that a request runs; return whether it has waited until now."""
        num_tokens = self._waiting.pop(request_id, None)
        self._num_tokens -= num_tokens or 0
        return num_tokens is not None

    def leave(self, request_id: str, now: float) -> None:
        """Forget a request, which has ended."""
        if self.admit(request_id):
            self.rate.note(0, len(self._waiting), now)
        tenant = self._tenants.pop(request_id, None)
        if tenant is not None:
            self._num_of[tenant] -= 1
            if not self._num_of[tenant]:
                del self._num_of[tenant]

    def _retry_after(self, num_requests: float, now: float) -> float:
        """Return after how many seconds so many will have been let in, as far as can be told: at least one."""
        seconds = self.rate.seconds_for(max(1, math.ceil(num_requests)), now)
        return 1.0 if seconds is None else min(MOST_RETRY_S, max(1.0, seconds))
