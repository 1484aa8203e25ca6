"""Distributes the engine's events among the open requests of a client.

Everything here runs on one event loop. Independent of the transport of events.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable

from llmfw.core.base.engine_info import EngineFailed
from llmfw.core.base.errors import EngineDeadError, EngineError, LLMFWError, OverloadedError, RequestError
from llmfw.core.base.request import Abort, EmbedRequest, FinishReason, Request, ToEngine, TokenEvent
from llmfw.core.ipc.wire import error_of


class EventStream:
    """Unread events of one request."""

    __slots__ = ("_error", "_events", "_waiter")

    def __init__(self) -> None:
        self._events: list[TokenEvent] = []
        self._waiter: asyncio.Future[None] | None = None
        self._error: EngineError | None = None

    def put(self, event: TokenEvent) -> None:
        """Add the next event."""
        self._events.append(event)
        if self._waiter is not None:
            self._wake()

    def fail(self, error: EngineError) -> None:
        """End the stream with an error, which `take` raises once all events have been read."""
        self._error = error
        self._wake()

    async def take(self) -> list[TokenEvent]:
        """Wait for events; return all that arrived since the last call, at least one."""
        while not self._events:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        events, self._events = self._events, []
        return events

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class EventStreams:
    """All open streams of one client, by request id.

    Args:
        send: function that sends a message to the engine; must not block.
    """

    def __init__(self, send: Callable[[ToEngine], None]) -> None:
        self._send = send
        self._streams: dict[str, EventStream] = {}
        self._failure: str | None = None

    @property
    def failure(self) -> str | None:
        """Reason why the engine can serve no more requests; None while it can."""
        return self._failure

    def deliver(self, events: Iterable[TokenEvent]) -> None:
        """Pass each event to its request. Drops events of requests without a reader."""
        for event in events:
            stream = self._streams.get(event.id)
            if stream is not None:
                stream.put(event)

    def fail(self, reason: str) -> None:
        """End all streams with an EngineDeadError, and refuse new ones. Later calls have no effect."""
        if self._failure is None:
            self._failure = reason
            for stream in self._streams.values():
                stream.fail(EngineDeadError(reason))

    async def generate(self, request: Request | EmbedRequest) -> AsyncGenerator[TokenEvent, None]:
        """Send a request and yield its events; see `EngineClient.generate`."""
        if self._failure is not None:
            raise EngineDeadError(self._failure)
        if request.id in self._streams:
            raise RequestError(f"a request with id {request.id!r} runs already; use another id", param="id")
        stream = self._streams[request.id] = EventStream()
        finished = False
        try:
            self._send(request)
            while not finished:
                for event in await stream.take():
                    finished = event.finish_reason is not None
                    if event.finish_reason is FinishReason.ERROR:
                        raise _error_of(event)
                    yield event
        finally:
            del self._streams[request.id]
            if not finished and self._failure is None:
                self._send(Abort([request.id]))

    async def embed(self, request: EmbedRequest) -> bytes:
        """Send a request and return its vectors; see `EngineClient.embed`."""
        async with contextlib.aclosing(self.generate(request)) as events:
            return b"".join([event.vectors async for event in events])


def _error_of(event: TokenEvent) -> LLMFWError:
    """Return the exception that the engine reports in a request's final event."""
    reason = event.error or "the engine gave no reason"
    if not event.error_kind:
        return EngineError(reason)
    error = error_of(EngineFailed(event.error_kind, reason))
    if isinstance(error, EngineDeadError):  # raised by a plugin: an engine that reports it has not died
        return EngineError(reason)
    if isinstance(error, RequestError):
        error.param = event.error_param
    if isinstance(error, OverloadedError):
        error.retry_after_s = event.retry_after_s
    return error
