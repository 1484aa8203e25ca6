"""One tenant's use of its limits: the rates per minute, and the deferrable requests in the engine."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple

from llmfw.core.base.errors import RateLimitError
from llmfw.core.interfaces.tenant_limits import TenantLimits

from .rate_bucket import RateBucket

MAX_EXPECTED = 8
"""Maximum number of deferrable requests that may be on their way to `start_deferrable`."""
RECHECK_S = 1.0
"""Longest time in seconds after which a waiting request looks again: the tenant's limits may have changed."""


class Rate(NamedTuple):
    """A rate, and the amount of it that is left.

    Attributes:
        what: "requests" or "tokens".
        per_minute: amount per minute.
        left: amount that is left now; below 0 after a request that used more than there was.
        full_in_s: seconds until the full amount is available again, if nothing is used meanwhile.
    """

    what: str
    per_minute: int
    left: float
    full_in_s: float


class TenantLoad:
    """A tenant's use of its limits.

    Args:
        tenant: name of the tenant, for messages.
        look: function that returns the tenant's current limits; None: no limits.
        clock: monotonic clock in seconds.

    Attributes:
        limits: the limits when they were looked up last.
    """

    def __init__(
        self,
        tenant: str,
        look: Callable[[], TenantLimits | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = TenantLimits()
        self._tenant = tenant
        self._look = look
        self._clock = clock
        self._requests: RateBucket | None = None
        self._tokens: RateBucket | None = None
        self._num_deferrable = 0  # in the engine
        self._num_expected = 0  # deferrable requests that `ready` has let pass and that have not started
        self._changed = asyncio.Event()
        self._turn, self._ready_turn = asyncio.Lock(), asyncio.Lock()
        self.refresh()

    def refresh(self) -> None:
        """Look up the limits. A change of the limits does not reset the amounts used."""
        limits, now = self._look() or TenantLimits(), self._clock()
        if limits == self.limits:
            return
        self.limits = limits
        self._requests = _changed(self._requests, limits.requests_per_minute, now)
        self._tokens = _changed(self._tokens, limits.tokens_per_minute, now)

    def start(self, num_tokens: int) -> None:
        """Count a request.

        Args:
            num_tokens: number of tokens of its prompts.

        Raises:
            RateLimitError: a rate does not allow the request now; nothing was counted.
        """
        now = self._clock()
        for bucket, what, amount in ((self._requests, "requests", 1), (self._tokens, "tokens", num_tokens)):
            if bucket is not None and (wait_s := bucket.seconds_until(amount, now)) > 0:
                raise RateLimitError(
                    f"{self._tenant!r} has used its {bucket.per_minute} {what} per minute; try again in {wait_s:.3g} s",
                    retry_after_s=wait_s,
                )
        self._take(1, num_tokens)

    def seconds_until(self, num_tokens: int) -> float:
        """Return the seconds until `start` would count a request; 0.0: now."""
        self.refresh()
        now, amounts = self._clock(), ((self._requests, 1), (self._tokens, num_tokens))
        waits = (bucket.seconds_until(amount, now) for bucket, amount in amounts if bucket is not None)
        return max(waits, default=0.0)

    async def start_deferrable(self, num_tokens: int) -> None:
        """Wait until a deferrable request may start, in order of arrival, and count it. Call `leave` at its end.

        Reserves half of each rate for requests that are not deferrable. At most `max_requests` deferrable
        requests are in the engine at once.
        """
        async with self._turn:
            while (wait_s := self._seconds_until_deferrable(num_tokens)) > 0:
                await self._pause(wait_s)
            self._take(1, num_tokens)
            self._num_deferrable += 1
            self._num_expected = max(0, self._num_expected - 1)
        self._changed.set()

    async def ready(self) -> None:
        """Wait until another deferrable request would probably start at once.

        Work that takes a shared place, such as a line of a batch, waits here first. So a tenant at its limits
        does not occupy places that other tenants could use.
        """
        async with self._ready_turn:
            while (wait_s := self._seconds_until_deferrable(1)) > 0 or not self._expects_more():
                is_changed = await self._pause(wait_s or RECHECK_S)
                if not (is_changed or wait_s or self._turn.locked()):
                    self._num_expected = 0  # requests that have not arrived by now failed earlier
            self._num_expected += 1

    def leave(self) -> None:
        """Record that a deferrable request has ended."""
        self._num_deferrable -= 1
        self._changed.set()

    def rates(self) -> list[Rate]:
        """Return the tenant's rates, with the amount left of each."""
        now = self._clock()
        return [
            Rate(what, bucket.per_minute, bucket.left(now), bucket.seconds_until(bucket.per_minute, now))
            for what, bucket in (("requests", self._requests), ("tokens", self._tokens))
            if bucket is not None
        ]

    def note_output(self, num_tokens: int) -> None:
        """Count tokens that a request has generated."""
        self._take(0, num_tokens)

    def give_back(self, num_tokens: int) -> None:
        """Uncount a request that the engine has refused."""
        self._take(-1, -num_tokens)

    def _take(self, num_requests: int, num_tokens: int) -> None:
        now = self._clock()
        for bucket, amount in ((self._requests, num_requests), (self._tokens, num_tokens)):
            if bucket is not None:
                bucket.take(amount, now)

    async def _pause(self, seconds: float) -> bool:
        """Wait until a deferrable request starts or ends, at most RECHECK_S; return whether one has."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._changed.wait(), min(seconds, RECHECK_S))
        return False

    def _expects_more(self) -> bool:
        """Return whether no request waits, and the limits allow one more request than the expected ones."""
        if self._turn.locked():
            return False
        num, most, rate = self._num_expected, self.limits.max_requests, self._requests
        has_place = most is None or self._num_deferrable + num < most
        has_rate = rate is None or rate.left(self._clock()) - rate.per_minute // 2 > num
        return not num or (num < MAX_EXPECTED and has_place and has_rate)

    def _seconds_until_deferrable(self, num_tokens: int) -> float:
        self.refresh()
        most = self.limits.max_requests
        if most is not None and self._num_deferrable >= most:
            return RECHECK_S
        now = self._clock()
        return max(
            (
                bucket.seconds_until(amount, now, leave=bucket.per_minute // 2)
                for bucket, amount in ((self._requests, 1), (self._tokens, num_tokens))
                if bucket is not None
            ),
            default=0.0,
        )


def _changed(bucket: RateBucket | None, per_minute: int | None, now: float) -> RateBucket | None:
    """Return a bucket with another amount per minute; None for no limit."""
    if per_minute is None:
        return None
    if bucket is None:
        return RateBucket(per_minute, now)
    bucket.change(per_minute, now)
    return bucket
