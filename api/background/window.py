"""Lines in flight: how many there may be, and whose turn it is.

As many as keep the engine's batch full, and a small queue behind it: what stands in the engine's queue only takes
memory, and time to abort. Jobs share them evenly, whatever their size. Knows nothing of what a line is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Hashable

QUEUED_SHARE = 8  # the queue that is kept behind the engine's batch is this part of it
SAMPLES = 4  # a queue counts as standing if it was there in so many looks in a row


class Window:
    """Lines in flight of all jobs.

    Args:
        batch: the most requests that the engine runs at once.

    Attributes:
        limit: how many lines may be in flight now.
    """

    def __init__(self, batch: int) -> None:
        self._queue = max(2, batch // QUEUED_SHARE)
        self._most = batch + self._queue
        self.limit = self._most
        self._flying: dict[Hashable, int] = {}
        self._total = 0
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._waiting_alone: dict[asyncio.Future[None], Hashable] = {}  # in the order in which they came
        self._is_alone = False  # the line in flight is to have no company
        self._looks: deque[int] = deque(maxlen=SAMPLES)

    @property
    def total(self) -> int:
        """How many lines are in flight."""
        return self._total

    async def enter(self, job: Hashable, *, alone: bool = False) -> None:
        """Wait until a line of a job may be sent. Each `enter` that returns needs its `leave`.

        Args:
            alone: until no line is in flight; none is sent before this one has left. Goes before all others.
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
            self._let_in()
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(job)
            else:
                self._forget(job, turn)
            raise

    @contextlib.asynccontextmanager
    async def alone(self, job: Hashable) -> AsyncIterator[None]:
        """Enclose work of a job during which no line of any job is in flight."""
        await self.enter(job, alone=True)
        try:
            yield
        finally:
            self.leave(job)

    def leave(self, job: Hashable) -> None:
        """Note that a line of a job is not in flight any more."""
        self._total -= 1
        self._flying[job] -= 1
        if not self._flying[job]:
            del self._flying[job]
        self._is_alone = False  # if it was, it is this one that has left
        self._let_in()

    def look(self, num_waiting: int) -> None:
        """Adapt the limit to how many lines wait in the engine now. To be called every quarter of a second or so.

        A queue that is there in all of the last looks is too long by what it exceeds its share; where there was a
        short one among them, more may be sent.
        """
        self._looks.append(num_waiting)
        standing = min(self._looks)
        if standing > self._queue and len(self._looks) == SAMPLES:
            self.limit = max(self._queue, self._total - (standing - self._queue))
            self._looks.clear()
        elif standing <= self._queue // 2:
            self.limit = min(self._most, self.limit + max(1, self.limit // 2))
            self._let_in()

    @property
    def _has_room(self) -> bool:
        """Whether a line may be sent that minds no company."""
        return self._total < self.limit and not (self._is_alone or self._waiting_alone)

    def _admit(self, job: Hashable) -> None:
        self._total += 1
        self._flying[job] = self._flying.get(job, 0) + 1

    def _let_in(self) -> None:
        """Admit who waits, the jobs with the fewest lines in flight first."""
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
            # At the end of the line: among equals everyone's turn comes.
            turns = self._waiting.pop(job)
            if turns:
                self._waiting[job] = turns
            if not turn.done():
                self._admit(job)
                turn.set_result(None)

    def _forget(self, job: Hashable, turn: asyncio.Future[None]) -> None:
        if self._waiting_alone.pop(turn, None) is not None:
            self._let_in()  # those that it held up
            return
        turns = self._waiting.get(job)
        if turns and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[job]
