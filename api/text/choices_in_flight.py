"""Sends the choices of one client request to the engine, as many at a time as it has places.

Handles requests and their token events; `generation` turns the events into text.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from llmfw.core.base.errors import DeadlineError, OverloadedError, RateLimitError
from llmfw.core.base.request import Request, TokenEvent
from llmfw.core.client.client import EngineClient

from .engine_places import EnginePlaces, Holder

if TYPE_CHECKING:
    from .choice import Choice

MAX_UNANSWERED_TOKENS = 8192
"""Maximum number of prompt tokens of all choices that were sent and have not produced a token yet.

A prompt shared by several choices counts once.
"""
MAX_RETRY_S = 1.0

Item = tuple["Choice", "TokenEvent | Exception | None"]
"""A choice with its next event, with an error, or with None after its last event."""


class ChoicesInFlight:
    """Runs the choices of one client request and returns their events in order of arrival.

    Holds places from the start until `close`.

    Args:
        choices: one or more choices, sent in this order.
        places: limit on the choices that are in the engine at once; None: no limit.

    Attributes:
        first: indexes of the choices that the constructor sent, before any event had arrived.
    """

    def __init__(self, client: EngineClient, choices: Sequence[Choice], places: EnginePlaces | None) -> None:
        self._client = client
        self._is_limited = places is not None
        self._places = places or EnginePlaces(sys.maxsize)
        self._waiting = deque(choices)
        self._queue: asyncio.Queue[Item] = asyncio.Queue()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._unanswered: dict[int, Sequence[int]] = {}
        self._started: float | None = None  # when the first choice was sent
        request = choices[0].request
        self._holder = Holder(
            request.tenant if request.tenant_is_key else "", self._wants_place, self._send_one
        )
        self._places.join(self._holder)
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
                self._places.fill(self._holder)
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
        self._places.release(self._holder)

    async def close(self) -> None:
        """Abort all choices that still run, and free their places."""
        tasks = [*self._tasks.values(), *self._ending]
        for task in tasks:
            task.cancel()
        self._waiting.clear()
        self._tasks.clear()
        self._places.leave(self._holder)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _send_one(self) -> None:
        choice = self._waiting.popleft()
        self._unanswered[choice.index] = choice.request.prompt
        self._tasks[choice.index] = asyncio.create_task(self._pump(choice))

    def _wants_place(self) -> bool:
        if not self._waiting or not self._is_limited or not self._tasks:
            return bool(self._waiting)
        prompt = self._waiting[0].request.prompt
        prompts = {id(each): len(each) for each in (*self._unanswered.values(), prompt)}
        return sum(prompts.values()) <= MAX_UNANSWERED_TOKENS

    async def _pump(self, choice: Choice) -> None:
        try:
            while not await self._sent(choice):
                pass
        except Exception as error:  # noqa: BLE001 - passed on to the caller of `next`
            self._queue.put_nowait((choice, error))
        else:
            self._queue.put_nowait((choice, None))

    async def _sent(self, choice: Choice) -> bool:
        """Run a choice to its end and return True.

        If the engine is full, raises OverloadedError for a choice in `first`. For later choices, waits for
        the engine's retry time and returns False, because the reply to the client has already started. If a
        rate of the tenant is used up, raises RateLimitError for the very first choice only: otherwise a
        request with more choices than the rate has could never be answered.
        """
        request = self._timed(choice.request)
        try:
            async with contextlib.aclosing(self._client.generate(request)) as events:
                async for event in events:
                    self._queue.put_nowait((choice, event))
        except OverloadedError as error:
            if choice.index == 0 or (choice.index in self.first and not isinstance(error, RateLimitError)):
                raise
            await asyncio.sleep(min(error.retry_after_s, MAX_RETRY_S))
            return False
        return True

    def _timed(self, request: Request) -> Request:
        """Return the request with the rest of its timeout, which starts when the first choice is sent.

        Raises:
            DeadlineError: the timeout has passed.
        """
        if request.timeout_s is None:
            return request
        if self._started is None:
            self._started = time.monotonic()
            return request
        left_s = request.timeout_s - (time.monotonic() - self._started)
        if left_s <= 0:
            raise DeadlineError(
                f"the request's timeout of {request.timeout_s:.3g} s has passed before all of its choices had begun"
            )
        return msgspec.structs.replace(request, timeout_s=left_s)
