"""The memory that bodies may take up while they are received: whose they are, and which one goes if it is used up.

Knows nothing of HTTP. A body that has made no progress for a while goes first; then one of the owner that holds most. So
a client that leaves its bodies unfinished cannot keep others from sending theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SLOW_S, SLOW_BYTES = 5.0, 2**18
"""A body is slow if it has not got SLOW_BYTES further within SLOW_S."""


class Body:
    """One body that is being received.

    Args:
        owner: who sends it.
        evict: called if its memory is needed; it is ended soon after.
        now: seconds.
    """

    __slots__ = ("advanced_at", "advanced_to", "evict", "is_whole", "owner", "size")

    def __init__(self, owner: str, evict: Callable[[], None], now: float) -> None:
        self.owner = owner
        self.evict = evict
        self.size = 0
        self.is_whole = False  # then it waits for the server, and stays
        self.advanced_to = 0
        self.advanced_at = now


class BodyBudget:
    """The memory of all bodies together.

    Args:
        most: bytes.
        clock: tells seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._bodies: dict[Body, None] = {}  # the oldest first
        self._used = 0

    def begin(self, owner: str, evict: Callable[[], None]) -> Body:
        """Return a body without bytes, to be ended by `end`."""
        body = Body(owner, evict, self._clock())
        self._bodies[body] = None
        return body

    def grow(self, body: Body, size: int) -> bool:
        """Count what has come of a body; other bodies may be evicted for it.

        Args:
            size: bytes so far.

        Returns:
            False if there is no room for them, or if the body was evicted: it should be refused.
        """
        if body not in self._bodies:
            return False
        now = self._clock()
        if size - body.advanced_to >= SLOW_BYTES:
            body.advanced_to, body.advanced_at = size, now
        self._used += size - body.size
        body.size = size
        while self._used > self._most:
            victim = self._victim(body, now)
            if victim is None:
                self.end(body)
                return False
            self.end(victim)
            victim.evict()
        return True

    def end(self, body: Body) -> None:
        """Free a body's memory. Does nothing if it was evicted."""
        if body in self._bodies:
            del self._bodies[body]
            self._used -= body.size

    def _victim(self, asking: Body, now: float) -> Body | None:
        """Return the body that goes: the slowest of all, if it is slow; else of the owner that holds more than who asks."""
        others = [body for body in self._bodies if body is not asking and body.size and not body.is_whole]
        slowest = min(others, key=lambda body: body.advanced_at, default=None)
        if slowest is None or now - slowest.advanced_at > SLOW_S:
            return slowest
        held: dict[str, int] = {}
        for body in self._bodies:
            held[body.owner] = held.get(body.owner, 0) + body.size
        largest = max((body.owner for body in others), key=lambda owner: held[owner])
        if held[largest] <= held[asking.owner]:
            return None
        return min((body for body in others if body.owner == largest), key=lambda body: body.advanced_at)
