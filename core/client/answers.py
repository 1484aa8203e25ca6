"""Matches the engine's answers to the commands and queries that a client sent."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable

from llmfw.core.base.control import Answer, Command
from llmfw.core.base.engine_info import ControlAnswer, EngineStats
from llmfw.core.base.errors import EngineDeadError
from llmfw.core.base.request import Control, StatsQuery
from llmfw.core.ipc.wire import error_of


class ControlAnswers:
    """Sends commands and waits for their answers, by number. Everything here runs on one event loop.

    Args:
        send: function that sends a message to the engine; must not block.
    """

    def __init__(self, send: Callable[[Control], None]) -> None:
        self._send = send
        self._numbers = itertools.count()
        self._open: dict[int, asyncio.Future[Answer]] = {}
        self._failure: str | None = None

    async def ask(self, command: Command) -> Answer:
        """Send a command and return its answer; see `EngineClient.control`."""
        if self._failure is not None:
            raise EngineDeadError(self._failure)
        number = next(self._numbers)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[number] = answer
        try:
            self._send(Control(number, command))
            return await answer
        finally:
            self._open.pop(number, None)

    def take(self, found: ControlAnswer) -> None:
        """Pass an answer to the caller of `ask`. Drops the answer if the caller no longer waits."""
        answer = self._open.get(found.number)
        if answer is None or answer.done():
            return
        if found.answer is not None:
            answer.set_result(found.answer)
        elif found.failure is not None:
            answer.set_exception(error_of(found.failure))

    def fail(self, reason: str) -> None:
        """End all open commands with an EngineDeadError, and refuse new ones. Later calls have no effect."""
        if self._failure is None:
            self._failure = reason
            for answer in self._open.values():
                if not answer.done():
                    answer.set_exception(EngineDeadError(reason))


class StatsAnswers:
    """Asks for statistics and waits for them. Everything here runs on one event loop.

    An engine answers these queries in their order, so they need no numbers.

    Args:
        send: function that sends a message to the engine; must not block.
    """

    def __init__(self, send: Callable[[StatsQuery], None]) -> None:
        self._send = send
        self._open: deque[asyncio.Future[EngineStats]] = deque()
        self._failure: str | None = None

    async def ask(self) -> EngineStats:
        """Return the engine's statistics; see `EngineClient.stats`."""
        if self._failure is not None:
            raise EngineDeadError(self._failure)
        answer: asyncio.Future[EngineStats] = asyncio.get_running_loop().create_future()
        self._open.append(answer)
        self._send(StatsQuery())
        return await answer

    def take(self, stats: EngineStats) -> None:
        """Pass statistics to the first caller of `ask`. Drops them if the caller no longer waits."""
        answer = self._open.popleft() if self._open else None
        if answer is not None and not answer.done():
            answer.set_result(stats)

    def fail(self, reason: str) -> None:
        """End all open queries with an EngineDeadError, and refuse new ones. Later calls have no effect."""
        if self._failure is None:
            self._failure = reason
            for answer in self._open:
                if not answer.done():
                    answer.set_exception(EngineDeadError(reason))
            self._open.clear()
