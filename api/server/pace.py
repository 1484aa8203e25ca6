"""Spaces out work that blocks the event loop, so that other work gets half of the time."""

from __future__ import annotations

import asyncio
from collections import deque

from llmfw.core.base.errors import OverloadedError

MAX_WAIT_S = 10.0
_FIRST_COST_S = 1e-4  # smallest cost in the second class
_NUM_CLASSES = 24
_ROUNDS = 4
"""Iterations of the event loop within which a piece of work is done if it waits for nothing else."""


class Pace:
    """Gives turns to pieces of work, the cheapest first.

    After each piece of work, other work gets as much time as the piece took. Waiting work is grouped into
    classes by cost, each class covering twice the cost of the one before, so that expensive work does not
    delay cheap work.
    """

    def __init__(self) -> None:
        self._waiting: list[deque[tuple[float, asyncio.Future[None]]]] = [
            deque() for _ in range(_NUM_CLASSES)
        ]
        self._cost_s = [0.0] * _NUM_CLASSES  # total cost of the waiting work in each class
        self._free_at = 0.0
        self._is_busy = False  # a piece of work has started, and its duration is not known yet
        self._timer: asyncio.TimerHandle | None = None  # starts the next piece of work

    async def turn(self, cost_s: float) -> None:
        """Wait for the turn of a piece of work. The caller must run the work right after this returns.

        Args:
            cost_s: estimated duration of the work, in seconds.

        Raises:
            OverloadedError: the work has waited for MAX_WAIT_S, or would have to wait longer.
        """
        now = asyncio.get_running_loop().time()
        if not self._is_busy and self._timer is None and self._free_at <= now:
            self._begin(cost_s)
            return
        kind = min(int(cost_s / _FIRST_COST_S).bit_length(), _NUM_CLASSES - 1)
        if self._free_at - now + 2 * sum(self._cost_s[: kind + 1]) > MAX_WAIT_S:
            raise _overloaded()
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[kind].append((cost_s, ready))
        self._cost_s[kind] += cost_s
        self._wait()
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                await ready
        except TimeoutError:
            raise _overloaded() from None
        finally:
            self._cost_s[kind] -= cost_s

    def _begin(self, cost_s: float) -> None:
        """Record that a piece of work starts."""
        loop = asyncio.get_running_loop()
        self._is_busy = True
        self._free_at = loop.time() + 2 * cost_s
        loop.call_soon(self._measure, loop.time(), _ROUNDS)

    def _measure(self, begun_at: float, rounds: int) -> None:
        """Measure how long a piece of work took. If it took longer than estimated, delay the next piece.

        Args:
            begun_at: time at which the work started.
            rounds: iterations of the event loop to wait before the work counts as done.
        """
        loop = asyncio.get_running_loop()
        if rounds:
            loop.call_soon(self._measure, begun_at, rounds - 1)
            return
        now = loop.time()
        self._is_busy = False
        self._free_at = max(self._free_at, now + (now - begun_at))
        self._wait()

    def _wait(self) -> None:
        """Schedule the next piece of work, if one waits."""
        if not self._is_busy and self._timer is None and any(self._waiting):
            self._timer = asyncio.get_running_loop().call_at(self._free_at, self._next)

    def _next(self) -> None:
        """Start the work that has waited longest in the cheapest class with any waiting work."""
        self._timer = None
        for waiting in self._waiting:
            while waiting:
                cost_s, ready = waiting.popleft()
                if not ready.done():  # otherwise it timed out, or its client disconnected
                    ready.set_result(None)
                    self._begin(cost_s)
                    return


def _overloaded() -> OverloadedError:
    return OverloadedError("too many large bodies wait to be read", retry_after_s=MAX_WAIT_S)
