"""Makes requests wait, within limits, while no engine can take them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from llmfw.core.base.errors import (
    CrashingRequestError,
    EngineDeadError,
    EngineRestartingError,
    OverloadedError,
)
from llmfw.core.base.request import EmbedRequest, Request

from .quarantine import Attempt
from .time_left import in_time

WAIT_S = 60.0
"""Seconds that a new request waits for an engine that is being restarted. Deferrable requests, and requests
that were already sent to an engine, wait until the restart succeeds or is given up."""
MAX_WAITING = 1000
"""Maximum number of new requests that wait for an engine that is being restarted, not counting deferrable
ones."""


class EngineWait:
    """Holds requests back until an engine is usable, or until no engine will ever be usable again.

    Args:
        outage: function that returns why no engine is usable, for errors.
        wait_s: seconds that a new request waits (see WAIT_S).
    """

    def __init__(self, outage: Callable[[], str | None], wait_s: float = WAIT_S) -> None:
        self._is_over = asyncio.Event()
        self._outage = outage
        self._wait_s = wait_s
        self._num_waiting = 0
        self._on_change: Callable[[], None] = lambda: None

    @property
    def is_over(self) -> bool:
        """Whether the wait is over: an engine is usable, or no engine will ever be usable again."""
        return self._is_over.is_set()

    def call_on_change(self, function: Callable[[], None]) -> None:
        """Register a function to call at each `begin` and `end`."""
        self._on_change = function

    def note_change(self) -> None:
        """Call the function of `call_on_change`."""
        self._on_change()

    def begin(self) -> None:
        """Make requests wait."""
        self._is_over.clear()
        self._on_change()

    def end(self) -> None:
        """Let the waiting requests continue."""
        self._is_over.set()
        self._on_change()

    async def ended(self) -> None:
        """Return once `is_over` is true."""
        await self._is_over.wait()

    async def wait(self, attempt: Attempt, request: Request | EmbedRequest, begun_at: float) -> None:
        """Make a request wait until `is_over` is true.

        Args:
            begun_at: time of the request's arrival, by the clock of `time.monotonic`.

        Raises:
            OverloadedError: too many requests are waiting.
            EngineRestartingError: the request has waited for too long.
            DeadlineError: the request's own timeout has passed.
        """
        is_patient = request.deferrable or attempt.was_sent
        if not is_patient and self._num_waiting >= MAX_WAITING:
            raise OverloadedError(f"{self._outage()}; {self._num_waiting} requests wait for it already")
        limits = [] if is_patient else [self._wait_s]
        if request.timeout_s is not None:
            limits.append(request.timeout_s - (time.monotonic() - begun_at))
        self._num_waiting += not is_patient
        try:
            async with asyncio.timeout(min(limits, default=None)):
                await self._is_over.wait()
        except TimeoutError:
            in_time(request, begun_at)
            waited = f"the request waited {self._wait_s:.0f} s for it"
            raise EngineRestartingError(f"{self._outage()}; {waited}") from None
        finally:
            self._num_waiting -= not is_patient


def check_rerun(attempt: Attempt, error: EngineDeadError, *, is_lost: bool, has_answered: bool) -> None:
    """Raise the error of a request whose engine died, unless the request may run again.

    Args:
        is_lost: whether no engine will run again.
        has_answered: whether the request has output that must not start over.
    """
    if is_lost:
        raise error
    if attempt.is_convicted:
        raise CrashingRequestError(
            f"the engine ended again while it ran this request alone; the request is not tried again: {error}"
        ) from error
    if has_answered:
        raise error
