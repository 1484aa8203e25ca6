"""A token bucket: limits the amount used per minute, and computes when more is available. Reads no clock."""

from __future__ import annotations

MINUTE_S = 60.0
ROUNDING = 1e-6
"""Amount that sums of many fractions may lack."""


class RateBucket:
    """How much of a limit per minute may be used now.

    The bucket is full at first, and fills at an even rate. It may fall below zero, because a request's output is
    known only while it runs; then nothing may start until it has filled again.

    Args:
        per_minute: amount per minute, at least 1; also the capacity of the bucket.
        now: time in seconds on a monotonic clock, as in all methods.
    """

    def __init__(self, per_minute: int, now: float) -> None:
        self._per_minute = per_minute
        self._left = float(per_minute)
        self._filled_at = now

    @property
    def per_minute(self) -> int:
        """Amount per minute."""
        return self._per_minute

    def left(self, now: float) -> float:
        """Return the amount that is left."""
        self._fill(now)
        return self._left

    def change(self, per_minute: int, now: float) -> None:
        """Change the amount per minute. Keeps the amount that is left, up to the new capacity."""
        self._fill(now)
        self._per_minute = per_minute
        self._left = min(self._left, float(per_minute))

    def seconds_until(self, amount: float, now: float, *, leave: float = 0.0) -> float:
        """Return the seconds until this amount may be taken; 0.0: now. A full bucket suffices for any amount.

        Args:
            leave: amount that must then remain, unless the bucket was full.
        """
        self._fill(now)
        missing = min(amount + leave, float(self._per_minute)) - self._left
        return missing * MINUTE_S / self._per_minute if missing > ROUNDING else 0.0

    def take(self, amount: float, now: float) -> None:
        """Take an amount, even if less is left. A negative amount returns unused capacity."""
        self._fill(now)
        self._left = min(self._left - amount, float(self._per_minute))

    def _fill(self, now: float) -> None:
        more = (now - self._filled_at) * self._per_minute / MINUTE_S
        self._left = min(self._left + more, float(self._per_minute))
        self._filled_at = now
