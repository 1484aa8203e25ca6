"""A token bucket: it limits what is used per minute, and knows when there will be some again. No clock."""

from __future__ import annotations

MINUTE_S = 60.0
ROUNDING = 1e-6
"""Amount that sums of many fractions may lack."""


class RateBucket:
    """What may be used now of an amount per minute.

    The bucket is full at first, and fills at an even rate. It may fall below zero, because a request's output is
    known only while it runs; then nothing may start until it has filled again.

    Args:
        per_minute: amount per minute, at least 1, which the bucket also holds at most.
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
        """Change the amount per minute. What is left stays, as far as the new amount allows."""
        self._fill(now)
        self._per_minute = per_minute
        self._left = min(self._left, float(per_minute))

    def seconds_until(self, amount: float, now: float, *, leave: float = 0.0) -> float:
        """Return the seconds until this amount may be taken; 0.0: now. A full bucket suffices for any amount.

        Args:
            leave: what must be left after that, if the bucket is not full.
        """
        self._fill(now)
        missing = min(amount + leave, float(self._per_minute)) - self._left
        return missing * MINUTE_S / self._per_minute if missing > ROUNDING else 0.0

    def take(self, amount: float, now: float) -> None:
        """Take an amount, even if it is not left; a negative amount gives back what was not used."""
        self._fill(now)
        self._left = min(self._left - amount, float(self._per_minute))

    def _fill(self, now: float) -> None:
        more = (now - self._filled_at) * self._per_minute / MINUTE_S
        self._left = min(self._left + more, float(self._per_minute))
        self._filled_at = now
