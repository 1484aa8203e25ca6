"""Runs requests on an engine that may die or hang, and runs interrupted requests again.

`engine_lives` decides when to replace the process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Callable

from llmfw.core.base.errors import EngineDeadError, EngineRestartingError
from llmfw.core.base.request import EmbedRequest, Request, TokenEvent
from llmfw.core.base.weights_command import OTHER_WEIGHTS

from .client import RequestWatch
from .engine_lives import EngineLives
from .engine_wait import WAIT_S, check_rerun
from .process import ProcessEngineClient
from .quarantine import Attempt, Witnesses
from .request_progress import Continuations, RequestProgress
from .restarts import RestartPolicy
from .time_left import in_time
from .weights_swap import WeightsSwap


class SupervisedEngineClient(EngineLives):
    """Runs requests on an engine whose process is replaced whenever it ends.

    After the end of a process, its requests run again. Requests with output continue after their output. If
    continuations are off, requests with output end with an EngineDeadError, unless their reader accepts that
    the output starts over (`Request.may_restart`). A request that repeatedly crashes the engine ends with a
    CrashingRequestError (`Quarantine`).

    Args:
        new_life, policy, wait_s, witnesses, weights, label: as of `EngineLives`.
        continuations: lets another engine process continue requests; None: they are not continued.
    """

    def __init__(
        self,
        new_life: Callable[[], ProcessEngineClient],
        policy: RestartPolicy | None = None,
        wait_s: float = WAIT_S,
        continuations: Continuations | None = None,
        witnesses: Witnesses | None = None,
        weights: WeightsSwap | None = None,
        label: int | str | None = None,
    ) -> None:
        super().__init__(new_life, policy, wait_s, witnesses, weights, label)
        self._continuations = continuations

    @property
    def num_continued(self) -> int:
        return 0 if self._continuations is None else self._continuations.count

    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        return self._events(request, request.may_restart)

    def watched(self, request: Request, watch: RequestWatch) -> AsyncGenerator[TokenEvent, None]:
        return self._events(request, request.may_restart, watch)

    async def embed(self, request: EmbedRequest) -> bytes:
        async with contextlib.aclosing(self._events(request, may_restart=True)) as events:
            return b"".join([event.vectors async for event in events])

    def once(
        self, request: Request | EmbedRequest, attempt: Attempt, begun_at: float
    ) -> AsyncGenerator[TokenEvent, None]:
        """Send a request, and yield its events until the end of the request or of the engine.

        Does not wait for a restart or run the request again, because the caller may have another engine for
        the request.

        Args:
            attempt: state of the request, from its arrival to its end.
            begun_at: time of the request's arrival, by the clock of `time.monotonic`.

        Raises:
            EngineDeadError: the engine cannot take the request, or ended while it ran the request.
            Other exceptions: as in `generate`.
        """
        return self._events(request, False, None, (attempt, begun_at))

    async def _events(
        self,
        request: Request | EmbedRequest,
        may_restart: bool,
        watch: RequestWatch | None = None,
        pooled: tuple[Attempt, float] | None = None,
    ) -> AsyncGenerator[TokenEvent, None]:
        """Yield the events of a request, across restarts of the engine.

        Args:
            pooled: arguments of `once`; None: the request was not sent by a pool.
        """
        attempt, begun_at = pooled or (Attempt(request.deferrable), time.monotonic())
        adapters, sleep = self.settings.adapters, self._sleep
        progress = RequestProgress(request, self._continuations, adapters.digest_of, lambda: sleep.num_loads)
        with contextlib.ExitStack() as at_end:
            if watch is not None:
                at_end.enter_context(watch)
            at_end.callback(self._quarantine.leave, attempt)
            while True:
                rest, has_begun, has_tokens = progress.rest, False, False
                life = await self._turn(attempt, request, begun_at, waits=pooled is None)
                try:
                    if has_begun := progress.is_void():
                        raise EngineDeadError(OTHER_WEIGHTS)
                    async with contextlib.aclosing(life.events(in_time(rest, begun_at))) as events:
                        async for event in events:
                            if has_tokens and event.token_ids and event.finish_reason is None:  # most events
                                if watch is not None:
                                    watch.num_tokens += len(event.token_ids)
                                progress.note(event)
                                yield event
                                continue
                            has_tokens = has_tokens or bool(event.token_ids)
                            if event.wait is None and not has_begun:
                                has_begun = True
                                self._quarantine.note_token(attempt)
                            progress.note(event)
                            if watch is not None:
                                watch.note(event)
                            if event.finish_reason is not None:
                                # Not after the loop: most readers close this generator at the last event.
                                self._restarts.note_answer()
                            yield event
                    return
                except EngineDeadError as error:
                    if pooled is not None:
                        raise
                    has_answered = has_begun and not (may_restart or progress.continues)
                    check_rerun(attempt, error, is_lost=self._failure is not None, has_answered=has_answered)
                finally:
                    self._in_flight.pop(attempt, None)
                    self._sleep.note_end()
                if has_begun and (restarted := progress.interrupt()) is not None:
                    if watch is not None:
                        watch.note(restarted)
                    yield restarted

    async def _turn(
        self, attempt: Attempt, request: Request | EmbedRequest, begun_at: float, *, waits: bool
    ) -> ProcessEngineClient:
        """Wait until the request may be sent; count it as in flight, and return the client of the engine process.

        Args:
            waits: whether to wait for a restart; if not, raises EngineRestartingError during a restart.
        """
        while True:
            if waits:
                await self._sleep.pass_hold(attempt, request, begun_at)
            refusal = self._sleep.refusal_of_part
            if waits and refusal is not None and not (request.deferrable or attempt.was_sent):
                raise refusal
            if not self._wait.is_over:
                if not waits:
                    raise EngineRestartingError(self._outage or "the engine sleeps")
                await self._wait.wait(attempt, request, begun_at)
            if self._failure is not None:
                raise EngineDeadError(self._failure)
            await self._quarantine.wait_turn(attempt)
            if self._wait.is_over and self._failure is None:
                self._in_flight[attempt] = None if request.deferrable else self._sleep.note_start()
                attempt.was_sent = True
                return self._life
