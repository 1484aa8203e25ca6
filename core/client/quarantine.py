"""Finds the request that crashes the engine among the requests in flight at the crash.

After a crash, requests that run again are suspects. While there are suspects, requests are sent one at a
time, live requests first: the next request is sent once the previous one has its first token. Requests
without a token at the crash are sent before requests with one.

- A request that crashes the engine before its first token is convicted at the second crash: by then, the
  other requests in flight have their first token, so they did not cause the crash. If several engines share
  the requests, some of these requests may not be suspects, because the suspect was sent to another engine.
- A request that crashes the engine after its first token leaves several suspects again. From the second crash
  on, each suspect runs alone until it ends, or for `ALONE_S`. A request that crashes the engine while it runs
  alone is convicted.
- A request that is the current suspect at its fourth crash is convicted, whatever else was in flight.

Deferrable requests, such as the lines of a batch, run alone from their first crash on, and are convicted at
their second. New live requests do not wait for them: "alone" means without other suspects and other
deferrable requests.

Requests rarely cause a death by SIGKILL, SIGTERM or SIGSTOP. Such a death counts half: after one, the
requests run again together, and a conviction takes four such deaths. Each such death clears the requests that
did not run in that engine of an earlier one: whatever ends the engines does so without them, too.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Collection

CRASH, KILL = 2, 1
"""Suspicion added to each request in flight: for a crash of the engine, and for a death caused from
outside."""
SUSPECT, STRICT, HOPELESS = 2, 4, 8
"""Thresholds of suspicion. From SUSPECT, a request waits for its turn. From STRICT, it runs alone and may be
convicted. From HOPELESS, it is convicted if it was the current suspect."""
ALONE_S = 10.0
"""Maximum number of seconds that a suspect runs alone."""


class Attempt:
    """The state of one request in the quarantine, from its arrival to its end.

    Args:
        deferrable: whether the request is deferrable; live requests are sent first.

    Attributes:
        suspicion: sum of CRASH or KILL over the deaths of the engine while the request was in flight.
        killed: the part of the suspicion that deaths caused from outside have added.
        has_token: whether the request has received a token since it was last sent.
        had_token: whether the request had a token when the engine died.
        was_sent: whether the request was ever sent to an engine.
        is_convicted: whether the request was found to crash the engine.
        turn: future that ends the wait in `wait_turn`; None: the request has not waited.
    """

    __slots__ = (
        "deferrable",
        "had_token",
        "has_token",
        "is_convicted",
        "killed",
        "suspicion",
        "turn",
        "was_sent",
    )

    def __init__(self, deferrable: bool) -> None:
        self.deferrable = deferrable
        self.suspicion = self.killed = 0
        self.has_token = False
        self.had_token = False
        self.was_sent = False
        self.is_convicted = False
        self.turn: asyncio.Future[None] | None = None

    @property
    def runs_alone(self) -> bool:
        """Whether the request must run without other suspects and other deferrable requests.

        This ends with the request, or after `ALONE_S` seconds. New live requests may run together with a
        deferrable request, but wait for a live one.
        """
        return self.suspicion >= (SUSPECT if self.deferrable else STRICT)


class Witnesses:
    """The requests that are at the engines of a server, whether they run or wait for their turn.

    When an engine is killed from outside, those that did not run there are less suspect than before.
    """

    def __init__(self) -> None:
        self._attempts: set[Attempt] = set()

    def __len__(self) -> int:
        return len(self._attempts)

    def enter(self, attempt: Attempt) -> None:
        """Note a request that has come to an engine."""
        self._attempts.add(attempt)

    def leave(self, attempt: Attempt) -> None:
        """Forget a request that has left its engine."""
        self._attempts.discard(attempt)

    def note_kill(self, in_flight: Collection[Attempt]) -> None:
        """Record that an engine was killed from outside while these requests ran there."""
        for attempt in self._attempts.difference(in_flight):
            if attempt.killed:
                attempt.killed -= KILL
                attempt.suspicion -= KILL


def _is_cleared(other: Attempt) -> bool:
    """Return whether a request cannot have caused a crash that also hit a suspect without a token."""
    return not other.had_token if other.suspicion else other.has_token


class Quarantine:
    """Decides when requests may be sent, so that suspects are sent one at a time.

    The supervisor awaits `wait_turn` before it sends a request, calls `note_token` at the first token and
    `leave` at the end, and calls `judge` when the engine has died. Everything here runs on one event loop.

    Args:
        witnesses: requests of all engines of the server; None: this is the only engine.
    """

    def __init__(self, witnesses: Witnesses | None = None) -> None:
        self._witnesses = Witnesses() if witnesses is None else witnesses
        self._line: list[tuple[bool, bool, bool, int, Attempt]] = []
        self._numbers = itertools.count()
        self._current: Attempt | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def wait_turn(self, attempt: Attempt) -> None:
        """Wait until a request may be sent. Returns at once while there are no suspects."""
        attempt.has_token = False
        self._witnesses.enter(attempt)
        if attempt is self._current or (self._is_open_to(attempt) and attempt.suspicion < SUSPECT):
            return
        loop = asyncio.get_running_loop()
        attempt.turn = loop.create_future()
        place = (attempt.deferrable, not attempt.runs_alone, attempt.had_token, next(self._numbers))
        heapq.heappush(self._line, (*place, attempt))
        loop.call_soon(self._next)  # once all requests that wake up together are in line
        await attempt.turn

    def note_token(self, attempt: Attempt) -> None:
        """Record that a request has its first token."""
        attempt.has_token = True
        if attempt is self._current and not attempt.runs_alone:
            self._release()

    def leave(self, attempt: Attempt) -> None:
        """Record that a request has ended or its client has disconnected."""
        self._witnesses.leave(attempt)
        self._end_turn(attempt)

    def judge(self, in_flight: Collection[Attempt], weight: int) -> None:
        """Record that the engine has died with these requests in flight; convict one if it is the cause.

        Args:
            weight: `CRASH`, or `KILL` if the death was caused from outside.
        """
        guilty = self._guilty(in_flight, weight)
        for attempt in in_flight:
            attempt.had_token = attempt.had_token or attempt.has_token
            attempt.suspicion = 0 if guilty is not None else attempt.suspicion + weight
            attempt.killed = 0 if guilty is not None else attempt.killed + (weight if weight == KILL else 0)
        if weight == KILL:
            self._witnesses.note_kill(in_flight)
        if guilty is not None:
            guilty.is_convicted = True
        if self._current in in_flight:
            self._release()

    def _guilty(self, in_flight: Collection[Attempt], weight: int) -> Attempt | None:
        """Return the request that crashed the engine; None if the cause is uncertain."""
        suspect = next(iter(in_flight)) if len(in_flight) == 1 else self._current
        if suspect is None or suspect not in in_flight or suspect.suspicion + weight < STRICT:
            return None
        others = [attempt for attempt in in_flight if attempt is not suspect]
        if suspect.deferrable and all(other.has_token and not other.suspicion for other in others):
            return suspect
        is_early = not (suspect.has_token or suspect.had_token)
        if is_early and all(_is_cleared(other) for other in others):
            return suspect
        return suspect if not others or suspect.suspicion + weight >= HOPELESS else None

    def _is_open_to(self, attempt: Attempt) -> bool:
        """Return whether a request that is not a suspect may be sent now, together with the current
        suspect."""
        if attempt.deferrable:
            return self._current is None and not self._line
        has_live_in_line = bool(self._line) and not self._line[0][0]
        return (self._current is None or self._current.deferrable) and not has_live_in_line

    def _end_turn(self, attempt: Attempt) -> None:
        if attempt is self._current:
            self._release()

    def _release(self) -> None:
        self._current = None
        if self._timer is not None:
            self._timer.cancel()
        self._next()

    def _next(self) -> None:
        while self._current is None and self._line:
            attempt = heapq.heappop(self._line)[-1]
            assert attempt.turn is not None
            if not attempt.turn.done():  # the client is still waiting
                self._current = attempt
                attempt.turn.set_result(None)
                self._timer = asyncio.get_running_loop().call_later(ALONE_S, self._end_turn, attempt)
