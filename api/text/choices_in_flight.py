"""Sends the choices of one client request to the engine, one for each place that the request holds.

Handles requests and their token events; `generation` turns the events into text.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from llmfw.core.base.errors import DeadlineError, OverloadedError, RateLimitError, TenantLimitError
from llmfw.core.base.request import Request, TokenEvent
from llmfw.core.client.client import EngineClient

from .engine_places import EnginePlaces, PlaceHolder

if TYPE_CHECKING:
    from .choice import Choice

MAX_UNANSWERED_TOKENS = 8192
"""Maximum number of prompt tokens of all choices that were sent and have not produced a token yet.

A prompt shared by several choices counts once.
"""
MAX_RETRY_S = 1.0
"""Longest time in seconds until a choice that the engine or a rate refuses is tried again."""

Item = tuple["Choice", "TokenEvent | Exception | None"]
"""A choice with its next event, with an error, or with None after its last event."""


class ChoicesInFlight(PlaceHolder):
    """Runs the choices of one client request and returns their events in order of arrival.

    Holds places from the start until `close`. A choice that waits for the engine, or for a rate of its
    tenant, holds no place. After such a wait, choices are sent one by one: each choice when the previous
    choice has its first token.

    Args:
        choices: one or more choices, sent in this order.
        places: limit on the choices that are in the engine at once; None: no limit.

    Attributes:
        first: indexes of the choices that the constructor sent, before any event had arrived.
        put_off: indexes of choices that were refused later, and wait to be sent again.
    """

    def __init__(self, client: EngineClient, choices: Sequence[Choice], places: EnginePlaces | None) -> None:
        request = choices[0].request
        super().__init__(request.tenant if request.tenant_is_key else "")
        self._client = client
        self._is_limited = places is not None
        self._places = places or EnginePlaces(sys.maxsize)
        self._waiting = deque(choices)
        self._queue: asyncio.Queue[Item] = asyncio.Queue()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._unanswered: dict[int, Sequence[int]] = {}
        self._started: float | None = None  # when the first choice was sent
        self._resuming: asyncio.TimerHandle | None = None  # ends a pause
        self._is_slowed = False
        self._resumes_at_end = False  # whether a pause may end with a choice of this request
        self._context = contextvars.copy_context()
        self.put_off: set[int] = set()
        self._places.join(self)
        self.first = frozenset(self._tasks)

    @property
    def is_open(self) -> bool:
        """Whether a choice is in the engine or waits to be sent."""
        return bool(self._tasks or self._waiting)

    async def next(self) -> Item:
        """Wait for the next item and return it. Skips items of choices that have already ended."""
        while True:
            choice, item = await self._queue.get()
            if choice.index not in self._tasks:
                continue  # the event arrived after its choice had ended
            if item is None or isinstance(item, Exception):
                self.end(choice)
            elif item.wait is None and self._unanswered.pop(choice.index, None) is not None:
                self._places.fill(self)
            return choice, item

    def end(self, choice: Choice) -> None:
        """End a choice that needs no more events: abort it if it still runs, and free its place."""
        task = self._tasks.pop(choice.index, None)
        if task is None:
            return
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        self._unanswered.pop(choice.index, None)
        if self._resumes_at_end and self._resuming is not None:
            self._resuming.cancel()
            self._resuming, self._resumes_at_end = None, False
        self._places.release(self)

    async def close(self) -> None:
        """Abort all choices that still run, and free their places."""
        tasks = [*self._tasks.values(), *self._ending]
        for task in tasks:
            task.cancel()
        self._waiting.clear()
        self._tasks.clear()
        if self._resuming is not None:
            self._resuming.cancel()
        self._places.leave(self)
        await asyncio.gather(*tasks, return_exceptions=True)

    def send_one(self) -> None:
        """Send the next choice."""
        choice = self._waiting.popleft()
        self.put_off.discard(choice.index)
        self._unanswered[choice.index] = choice.request.prompt
        # Another client's request that gives back a place, or a timer, may call this. Even then, the choice
        # is sent in the context of its own request, so that it counts as a part of that request.
        self._tasks[choice.index] = asyncio.create_task(self._pump(choice), context=self._context.copy())

    def wants_place(self) -> bool:
        """Return whether a choice waits that may be sent now. May start a pause."""
        if not self._waiting or self._resuming is not None or (self._is_slowed and self._unanswered):
            return False
        request = self._waiting[0].request
        if self._started is not None and not self._is_late(request):
            wait_s = self._client.seconds_until(request)
            if wait_s > 0:
                self._pause(wait_s)
                return False
        if not self._is_limited or not self._tasks:
            return True
        prompts = {id(each): len(each) for each in (*self._unanswered.values(), request.prompt)}
        return sum(prompts.values()) <= MAX_UNANSWERED_TOKENS

    def _pause(self, seconds: float) -> None:
        """Send no choices for some time."""
        self._is_slowed = True
        if self._resuming is None:
            loop = asyncio.get_running_loop()
            self._resuming = loop.call_later(min(seconds, MAX_RETRY_S), self._resume)

    def _resume(self) -> None:
        self._resuming, self._resumes_at_end = None, False
        self._places.fill(self)

    async def _pump(self, choice: Choice) -> None:
        """Run a choice to its end.

        If the engine is full, a choice in `first` ends with OverloadedError. Later choices are put off, because
        the reply to the client has already started. If a limit of the tenant is reached, the very first choice ends
        with TenantLimitError, and the others are put off: otherwise a request with more choices than the limit could
        never be answered.
        """
        try:
            async with contextlib.aclosing(self._client.generate(self._timed(choice.request))) as events:
                async for event in events:
                    self._queue.put_nowait((choice, event))
        except OverloadedError as error:
            if choice.index == 0 or (choice.index in self.first and not isinstance(error, TenantLimitError)):
                self._queue.put_nowait((choice, error))
            else:
                self._put_off(choice, error)
        except Exception as error:  # noqa: BLE001 - passed on to the caller of `next`
            self._queue.put_nowait((choice, error))
        else:
            self._queue.put_nowait((choice, None))

    def _put_off(self, choice: Choice, error: OverloadedError) -> None:
        """Free the place of a choice that was refused, and let it wait as if it had not been sent.

        If the tenant has too many requests at once, the wait ends early when another running choice of this
        request ends, because that makes room within the limit. The ends of the tenant's other requests are
        not seen here, so time ends the wait, too.
        """
        if self._tasks.pop(choice.index, None) is None:
            return
        self._unanswered.pop(choice.index, None)
        self.put_off.add(choice.index)
        self._waiting = deque(sorted((choice, *self._waiting), key=lambda each: each.index))
        is_at_once = isinstance(error, TenantLimitError) and not isinstance(error, RateLimitError)
        self._resumes_at_end = is_at_once and bool(self._tasks)
        self._pause(error.retry_after_s)
        self._places.release(self)

    def _is_late(self, request: Request) -> bool:
        """Return whether the request's timeout has passed. If so, the next choice ends the request."""
        return request.timeout_s is not None and self._left_s(request.timeout_s) <= 0

    def _left_s(self, timeout_s: float) -> float:
        return timeout_s if self._started is None else timeout_s - (time.monotonic() - self._started)

    def _timed(self, request: Request) -> Request:
        """Return the request with the rest of its timeout, which starts when the first choice is sent.

        Raises:
            DeadlineError: the timeout has passed.
        """
        if self._started is None:
            self._started = time.monotonic()
            return request
        if request.timeout_s is None:
            return request
        left_s = self._left_s(request.timeout_s)
        if left_s <= 0:
            raise DeadlineError(
                f"the request's timeout of {request.timeout_s:.3g} s has passed before all of its choices had begun"
            )
        return msgspec.structs.replace(request, timeout_s=left_s)
