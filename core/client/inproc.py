"""Runs the engine in a thread of the same process, for tests and small tools. Messages are not encoded."""

from __future__ import annotations

import asyncio
import enum
import logging
import queue
import threading
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from llmfw.core.base.control import Answer, Command
from llmfw.core.base.described import described
from llmfw.core.base.engine_info import ControlAnswer, EngineInfo, EngineStats
from llmfw.core.base.request import Abort, EmbedRequest, Request, ToEngine, TokenEvent
from llmfw.core.engine.generation.stream_interval import StreamInterval
from llmfw.core.engine.process.intake import take_in

from .answers import ControlAnswers, StatsAnswers
from .client import EngineClient
from .streams import EventStreams

if TYPE_CHECKING:
    from llmfw.core.engine.process.any_engine import AnyEngine

logger = logging.getLogger(__name__)


class Signal(enum.Enum):
    """Inbox entries that are not messages."""

    WAKE = 1
    END = 2


class InprocEngineClient(EngineClient):
    """Runs an engine's steps in one worker thread, which sleeps while there is no work.

    Args:
        engine: the engine; after `start`, only the worker thread uses it.
    """

    def __init__(self, engine: AnyEngine) -> None:
        self._engine = engine
        self._inbox: queue.SimpleQueue[ToEngine | Signal] = queue.SimpleQueue()
        self._streams = EventStreams(self._inbox.put)
        self._stats = StatsAnswers(self._inbox.put)
        self._answers = ControlAnswers(self._inbox.put)
        self._interval = StreamInterval(1)
        self._worker = threading.Thread(target=self._work, name="llmfw-engine", daemon=True)

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    @property
    def failure(self) -> str | None:
        return self._streams.failure

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._engine.call_when_ready(lambda: self._inbox.put(Signal.WAKE))
        self._worker.start()

    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        return self._streams.generate(request)

    async def embed(self, request: EmbedRequest) -> bytes:
        return await self._streams.embed(request)

    async def stats(self) -> EngineStats:
        return await self._stats.ask()

    async def control(self, command: Command) -> Answer:
        return await self._answers.ask(command)

    async def close(self) -> None:
        self._fail("the engine was closed")
        self._inbox.put(Signal.END)
        if self._worker.is_alive():
            await asyncio.to_thread(self._worker.join)

    def _work(self) -> None:
        try:
            while self._take_all_in():
                if self._engine.has_work and (events := self._interval.pass_on(self._engine.step())):
                    self._loop.call_soon_threadsafe(self._streams.deliver, events)
        except Exception as error:
            logger.exception("the engine failed")
            self._loop.call_soon_threadsafe(self._fail, f"the engine failed: {described(error)}")

    def _take_all_in(self) -> bool:
        """Handle all messages in the inbox; if the engine has no work, wait for one.

        Return False if the client is being closed.
        """
        while True:
            try:
                message = self._inbox.get(block=not self._engine.has_work, timeout=self._engine.sleep_s)
            except queue.Empty:
                return True
            if message is Signal.END:
                return False
            if message is Signal.WAKE:
                continue
            answer = take_in(self._engine, message)
            if isinstance(message, Abort):
                self._interval.forget(message.ids)
            elif answer is None and isinstance(message, Request | EmbedRequest):
                self._interval.begin(message)
            if isinstance(answer, EngineStats):
                self._loop.call_soon_threadsafe(self._stats.take, answer)
            elif isinstance(answer, ControlAnswer):
                self._loop.call_soon_threadsafe(self._answers.take, answer)
            elif answer is not None:
                self._loop.call_soon_threadsafe(self._streams.deliver, [answer])

    def _fail(self, reason: str) -> None:
        self._streams.fail(reason)
        self._answers.fail(reason)
        self._stats.fail(reason)
