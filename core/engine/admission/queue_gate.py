"""Limits the requests that wait, and measures the rate at which waiting requests are admitted. No tensors, no
clock.

The gate refuses a request before any work is done on it, so that the client, or a router in front of the
server, can try another server at once. Deferrable requests are neither counted nor refused. A request whose
grammar is being compiled counts as waiting. A retracted request does not count, because it was admitted
before.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, deque

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import OverloadedError, TenantLimitError
from llmfw.core.base.request import EmbedRequest, Request

logger = logging.getLogger(__name__)

WINDOW_S = 60.0  # older admissions do not count toward the rate
MOST_RETRY_S = 60.0
LEAST_QUEUED, QUEUED_PER_PLACE = 256, 16  # default limit: minimum, and number per request that may run
LEAST_QUEUED_TOKENS, QUEUED_PER_TOKEN = 2**20, 8  # the same for tokens; per token of KV storage
MOST_OVER = 2  # keys below their share may fill the queue to this multiple of its limit


class AdmissionRate:
    """Measures the number of requests admitted per second.

    Counts only admissions while other requests wait. An admission to an idle engine does not show how fast
    the engine can admit requests.
    """

    def __init__(self) -> None:
        self._since: float | None = None  # time since which the queue has not been empty
        self._admitted: deque[tuple[float, int]] = deque()
        self._num_admitted = 0
        self._last: float | None = None

    def note(self, num_admitted: int, num_waiting: int, now: float) -> None:
        """Record how many requests a step admits, and how many still wait."""
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
        """Return the rate per second up to the last admission, or less if the next admission is overdue.

        None: unknown.
        """
        while self._admitted and self._admitted[0][0] < now - WINDOW_S:
            self._num_admitted -= self._admitted.popleft()[1]
        if self._since is None or not self._num_admitted:
            return self._last
        start, count = max(self._since, now - WINDOW_S), self._num_admitted
        seconds = max(self._admitted[-1][0] - start, (now - start) * count / (count + 1))
        return count / seconds if seconds > 0 else self._last

    def seconds_for(self, num_requests: float, now: float) -> float | None:
        """Return the seconds until `num_requests` are admitted; None: unknown."""
        rate = self.per_second(now)
        return num_requests / rate if rate else None


class QueueGate:
    """Counts the requests that wait for their first admission, and the requests of each tenant, and enforces
    limits.

    Args:
        max_requests, max_tokens: maximum number of waiting requests, and of tokens in their prompts; None: no
            limit. An empty queue accepts any prompt. In a full queue, an API key may still use its share: the
            limit divided by the number of keys with waiting requests. So the queue may reach MOST_OVER times
            the limit.
        max_tenant_requests: maximum number of requests of one tenant, waiting and running. All requests
            without a tenant count as those of one tenant.

    Attributes:
        rate: rate at which requests are admitted.
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
        self._waiting: dict[str, int] = {}  # request id → number of prompt tokens
        self._num_tokens = 0
        self._keys: dict[str, str] = {}  # id of a waiting request → API key
        self._num_by_key: Counter[str] = Counter()  # waiting requests
        self._tokens_by_key: Counter[str] = Counter()
        self._tenants: dict[str, str] = {}  # id of an open request → tenant
        self._num_of: Counter[str] = Counter()

    @classmethod
    def of(cls, config: EngineConfig, places: int, pool_tokens: int = 0) -> QueueGate:
        """Return the gate for these settings, and log its limits at level debug.

        Args:
            places: maximum number of running requests.
            pool_tokens: size of the KV cache in tokens.
        """
        requests, tokens = config.max_queued_requests, config.max_queued_tokens
        if requests is None:
            requests = max(LEAST_QUEUED, QUEUED_PER_PLACE * places)
        if tokens is None:
            tokens = max(LEAST_QUEUED_TOKENS, QUEUED_PER_TOKEN * pool_tokens)
        logger.debug("max_queued_requests=%d, max_queued_tokens=%d (0: any number)", requests, tokens)
        return cls(requests or None, tokens or None, config.max_tenant_requests)

    @property
    def num_waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._waiting)

    def awaits(self, request_id: str) -> bool:
        """Return whether a request waits."""
        return request_id in self._waiting

    def check_request(self, request: Request | EmbedRequest, num_tokens: int, now: float) -> None:
        """Check whether the queue accepts a request with a prompt of `num_tokens` tokens; raise as `check` does."""
        self.check(
            num_tokens,
            request.tenant,
            now,
            is_key=request.tenant_is_key,
            max_requests=request.tenant_max_requests,
            max_queued=request.tenant_max_queued,
        )

    def check(
        self,
        num_tokens: int,
        tenant: str,
        now: float,
        *,
        is_key: bool = False,
        max_requests: int | None = None,
        max_queued: int | None = None,
    ) -> None:
        """Check whether the queue accepts a request.

        Args:
            num_tokens: number of tokens in the request's prompt.
            is_key: whether the tenant is an API key.
            max_requests, max_queued: the tenant's own limits on all its requests, and on its waiting
                requests. None: `max_tenant_requests` for all requests, no limit for waiting requests.

        Raises:
            TenantLimitError: the tenant has reached the limit on its requests.
            OverloadedError: the queue is full.
        """
        self._check_tenant(tenant, now, max_requests, max_queued)
        waiting = len(self._waiting)
        if is_key and self._is_within_share(num_tokens, tenant):
            return
        if self._max_requests is not None and waiting >= self._max_requests:
            raise OverloadedError(
                f"the queue is full: {waiting} requests wait, and at most {self._max_requests} may",
                retry_after_s=self._retry_after(waiting - self._max_requests + 1, now),
            )
        if self._max_tokens is not None and waiting and self._num_tokens + num_tokens > self._max_tokens:
            excess = self._num_tokens + num_tokens - self._max_tokens
            raise OverloadedError(
                f"the queue is full: prompts of {self._num_tokens} tokens wait, and this one's {num_tokens} tokens "
                f"would exceed the limit of {self._max_tokens} by {excess}",
                retry_after_s=self._retry_after(excess * waiting / max(1, self._num_tokens), now),
            )

    def _check_tenant(
        self, tenant: str, now: float, max_requests: int | None, max_queued: int | None
    ) -> None:
        most, count = max_requests or self._max_tenant_requests, self._num_of.get(tenant, 0)
        whose = f"{tenant!r} has" if tenant else "clients that name no user have"
        if most is not None and count >= most:
            raise TenantLimitError(
                f"{whose} {count} requests that wait or run; at most {most} are allowed at once",
                retry_after_s=self._retry_after(1, now),
            )
        queued = self._num_by_key.get(tenant, 0)
        if max_queued is not None and queued >= max_queued:
            raise TenantLimitError(
                f"{whose} {queued} requests that wait; at most {max_queued} may wait at once",
                retry_after_s=self._retry_after(queued - max_queued + 1, now),
            )

    def enter(self, request_id: str, num_tokens: int, tenant: str, *, is_key: bool = False) -> None:
        """Add a waiting request. Call `check` before."""
        if is_key:
            self._keys[request_id] = tenant
            self._num_by_key[tenant] += 1
            self._tokens_by_key[tenant] += num_tokens
        self._waiting[request_id] = num_tokens
        self._num_tokens += num_tokens
        self._tenants[request_id] = tenant
        self._num_of[tenant] += 1

    def admit(self, request_id: str) -> bool:
        """Record that a request is no longer waiting; return whether it was waiting until now."""
        num_tokens = self._waiting.pop(request_id, None)
        if num_tokens is None:
            return False
        self._num_tokens -= num_tokens
        if (key := self._keys.pop(request_id, None)) is not None:
            self._num_by_key[key] -= 1
            self._tokens_by_key[key] -= num_tokens
            if not self._num_by_key[key]:
                del self._num_by_key[key], self._tokens_by_key[key]
        return True

    def leave(self, request_id: str, now: float) -> None:
        """Forget a request that has ended."""
        if self.admit(request_id):
            self.rate.note(0, len(self._waiting), now)
        tenant = self._tenants.pop(request_id, None)
        if tenant is not None:
            self._num_of[tenant] -= 1
            if not self._num_of[tenant]:
                del self._num_of[tenant]

    def _is_within_share(self, num_tokens: int, key: str) -> bool:
        """Return whether an API key stays within its share of the queue if this request is added.

        A full queue still accepts such a request.
        """
        own = self._num_by_key[key]
        num_keys = len(self._num_by_key.keys() | {key})
        requests, tokens = self._max_requests, self._max_tokens
        if requests is not None and (
            own >= max(1, requests // num_keys) or len(self._waiting) >= MOST_OVER * requests
        ):
            return False
        if tokens is None or not own:
            return True
        has_room = self._num_tokens + num_tokens <= MOST_OVER * tokens
        return has_room and self._tokens_by_key[key] + num_tokens <= tokens // num_keys

    def _retry_after(self, num_requests: float, now: float) -> float:
        """Return the estimated seconds until `num_requests` are admitted: at least 1, at most
        MOST_RETRY_S."""
        seconds = self.rate.seconds_for(max(1, math.ceil(num_requests)), now)
        return 1.0 if seconds is None else min(MOST_RETRY_S, max(1.0, seconds))
