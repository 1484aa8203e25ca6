"""Memory budget for bodies that are being received, and the choice of a body to evict when it is used up.

A body that has made no progress for a while is evicted first; after that, a body of the owner with the most
bytes. So a client that leaves its bodies unfinished cannot keep others from sending theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SLOW_S, SLOW_BYTES = 5.0, 2**18
"""A body is slow if it received fewer than SLOW_BYTES in the last SLOW_S seconds."""


class Body:
    """One body that is being received.

    Args:
        owner: tenant or address of the client that sends it.
        evict: called when the body is evicted; must stop receiving it.
        now: current time of the budget's clock, in seconds.
    """

    __slots__ = ("advanced_at", "advanced_to", "evict", "is_whole", "owner", "size")

    def __init__(self, owner: str, evict: Callable[[], None], now: float) -> None:
        self.owner = owner
        self.evict = evict
        self.size = 0
        self.is_whole = False  # a complete body waits only for the server, and is never evicted
        self.advanced_to = 0
        self.advanced_at = now


class BodyBudget:
    """Limits the memory of all bodies together.

    Args:
        most: limit in bytes.
        clock: function that returns the current time in seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._bodies: dict[Body, None] = {}  # the oldest first
        self._used = 0

    def begin(self, owner: str, evict: Callable[[], None]) -> Body:
        """Add an empty body and return it. The caller must pass it to `end` later."""
        body = Body(owner, evict, self._clock())
        self._bodies[body] = None
        return body

    def grow(self, body: Body, size: int) -> bool:
        """Update the size of a body, evicting other bodies if the limit is exceeded.

        Args:
            size: bytes received so far.

        Returns:
            False if there is no room, or if this body was evicted; the body must then be refused.
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
        """Return the body to evict; None if no body may be evicted for `asking`.

        The slowest body is the one that has made no progress for the longest time. It is evicted if it is
        slow. Otherwise, the slowest body of the owner with the most bytes is evicted, if that owner has more
        bytes than the owner of `asking`.
        """
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
