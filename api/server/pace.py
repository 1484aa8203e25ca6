"""Spreads work that holds up the event loop, so that other work gets half of the time."""

from __future__ import annotations

import asyncio
from collections import deque

from llmfw.core.base.errors import OverloadedError

MAX_WAIT_S = 10.0
_FIRST_COST_S = 1e-4  # the least cost of the second class
_NUM_CLASSES = 24
_ROUNDS = 4
"""Rounds of the event loop after which work is over that nothing but the loop itself holds up."""


class Pace:
    """Gives each piece of work its turn, cheap ones first.

    After a piece of work, as much time goes to other work as this one took. Work waits in classes, each of twice the
    cost of the one before, so that a flood of expensive work does not hold up cheap work.
    """

    def __init__(self) -> None:
        self._waiting: list[deque[tuple[float, asyncio.Future[None]]]] = [
            deque() for _ in range(_NUM_CLASSES)
        ]
        self._cost_s = [0.0] * _NUM_CLASSES  # of what waits in each class
        self._free_at = 0.0
        self._is_busy = False  # a piece of work has begun, and what it takes is not known yet
        self._timer: asyncio.TimerHandle | None = None  # of the next piece of work

    async def turn(self, cost_s: float) -> None:
        """Return when it is a piece of work's turn.

        Args:
            cost_s: an estimate of what it takes.

        Raises:
            OverloadedError: it has waited for MAX_WAIT_S, or would have to.
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
        """Take note that a piece of work begins."""
        loop = asyncio.get_running_loop()
        self._is_busy = True
        self._free_at = loop.time() + 2 * cost_s
        loop.call_soon(self._look, loop.time(), _ROUNDS)

    def _look(self, begun_at: float, rounds: int) -> None:
        """Measure, some rounds of the loop after a piece of work has begun, whether it took longer than estimated."""
        loop = asyncio.get_running_loop()
        if rounds:
            loop.call_soon(self._look, begun_at, rounds - 1)
            return
        now = loop.time()
        self._is_busy = False
        self._free_at = max(self._free_at, now + (now - begun_at))
        self._wait()

    def _wait(self) -> None:
        """Have the next piece of work begin when it is time, if there is one."""
        if not self._is_busy and self._timer is None and any(self._waiting):
            self._timer = asyncio.get_running_loop().call_at(self._free_at, self._next)

    def _next(self) -> None:
        """Let the cheapest piece of work go on."""
        self._timer = None
        for waiting in self._waiting:
            while waiting:
                cost_s, ready = waiting.popleft()
                if not ready.done():  # else it has waited for too long, or its client has left
                    ready.set_result(None)
                    self._begin(cost_s)
                    return


def _overloaded() -> OverloadedError:
    return OverloadedError("too many large bodies wait to be read", retry_after_s=MAX_WAIT_S)
