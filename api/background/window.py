"""Limits the batch lines in flight, and lets the jobs that send them take turns.

A line is in flight between `enter` and `leave`. Background responses use a window of their own, in which each
response is a line, and each tenant is a job.

The limit keeps the engine's batch full, with a small queue behind it. More queued lines would only use memory
and take longer to abort. Jobs share the limit evenly, regardless of their size.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Hashable

QUEUED_SHARE = 8  # the target length of the engine's queue is its batch size divided by this
SAMPLES = 4  # number of consecutive calls of `look` with a queue above its target, before the limit falls


class Window:
    """Limits how many lines of all jobs together are in flight.

    Args:
        batch: maximum number of requests that the engine runs at once.

    Attributes:
        limit: maximum number of lines that may be in flight now.
    """

    def __init__(self, batch: int) -> None:
        self._queue = max(2, batch // QUEUED_SHARE)
        self._most = batch + self._queue
        self.limit = self._most
        self._flying: dict[Hashable, int] = {}
        self._total = 0
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._waiting_alone: dict[asyncio.Future[None], Hashable] = {}  # in order of arrival
        self._is_alone = False  # whether the line in flight runs alone
        self._looks: deque[int] = deque(maxlen=SAMPLES)

    @property
    def total(self) -> int:
        """Number of lines in flight."""
        return self._total

    async def enter(self, job: Hashable, *, alone: bool = False) -> None:
        """Wait until a line of a job may be sent. Call `leave` once for each call that returns.

        Args:
            alone: whether the line must run alone. Such a line goes before all other waiting lines. It starts
                when no other line is in flight, and other lines wait until it has ended.
        """
        if not alone and self._has_room and not self._waiting:
            self._admit(job)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if alone:
            self._waiting_alone[turn] = job
        else:
            self._waiting.setdefault(job, deque()).append(turn)
        try:
            self._admit_waiting()
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(job)
            else:
                self._forget(job, turn)
            raise

    @contextlib.asynccontextmanager
    async def alone(self, job: Hashable) -> AsyncIterator[None]:
        """Run a block of a job's work while no line of any job is in flight."""
        await self.enter(job, alone=True)
        try:
            yield
        finally:
            self.leave(job)

    def leave(self, job: Hashable) -> None:
        """Record that a line of a job is no longer in flight."""
        self._total -= 1
        self._flying[job] -= 1
        if not self._flying[job]:
            del self._flying[job]
        self._is_alone = False  # if a line ran alone, it is the one that left
        self._admit_waiting()

    def look(self, num_waiting: int) -> None:
        """Adapt the limit to the length of the engine's queue. Call this about every quarter of a second.

        If the queue was longer than its target in all of the last SAMPLES calls, the limit becomes the number
        of lines in flight minus the smallest excess, but at least the target. If the queue was at most half
        of its target in one of these calls, the limit rises by half, up to its maximum.

        Args:
            num_waiting: number of deferrable requests that wait in the engine.
        """
        self._looks.append(num_waiting)
        standing = min(self._looks)
        if standing > self._queue and len(self._looks) == SAMPLES:
            self.limit = max(self._queue, self._total - (standing - self._queue))
            self._looks.clear()
        elif standing <= self._queue // 2:
            self.limit = min(self._most, self.limit + max(1, self.limit // 2))
            self._admit_waiting()

    @property
    def _has_room(self) -> bool:
        """Whether a line may be sent now, if it need not run alone."""
        return self._total < self.limit and not (self._is_alone or self._waiting_alone)

    def _admit(self, job: Hashable) -> None:
        self._total += 1
        self._flying[job] = self._flying.get(job, 0) + 1

    def _admit_waiting(self) -> None:
        """Admit waiting lines: those that run alone, then those of jobs with the fewest lines in flight."""
        while self._waiting_alone and not self._total:
            turn, job = next(iter(self._waiting_alone.items()))
            del self._waiting_alone[turn]
            if not turn.done():
                self._is_alone = True
                self._admit(job)
                turn.set_result(None)
        while self._waiting and self._has_room:
            job = min(self._waiting, key=lambda job: self._flying.get(job, 0))
            turn = self._waiting[job].popleft()
            # Move the job to the end, so that jobs with equally many lines in flight take turns.
            turns = self._waiting.pop(job)
            if turns:
                self._waiting[job] = turns
            if not turn.done():
                self._admit(job)
                turn.set_result(None)

    def _forget(self, job: Hashable, turn: asyncio.Future[None]) -> None:
        if self._waiting_alone.pop(turn, None) is not None:
            self._admit_waiting()  # other lines had to wait for this one
            return
        turns = self._waiting.get(job)
        if turns and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[job]
