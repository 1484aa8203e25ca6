"""The interface through which all code outside the engine uses an engine."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from llmfw.core.base.control import Answer, Command
from llmfw.core.base.engine_info import EngineInfo, EngineStats
from llmfw.core.base.errors import NotReadyError
from llmfw.core.base.histogram import Histogram
from llmfw.core.base.request import EmbedRequest, FinishReason, Request, TokenEvent


class RequestWatch(AbstractContextManager[Any], Protocol):
    """Observes one request. Clients enter the watch at the start, and exit it at the end or at an exception.

    Attributes:
        num_tokens: number of tokens of the events so far. Clients add the tokens of the events that they do
            not pass to `note`.
    """

    num_tokens: int

    def note(self, event: TokenEvent) -> None:
        """Take an event into account, before the request's reader gets it; must return at once.

        Clients do not call this method for the events between the first and the last event with tokens. For
        those events, clients add to `num_tokens`, which costs less than one call per token.
        """


class NoWatch:
    """A `RequestWatch` that records nothing but the number of tokens, for requests that are not watched."""

    __slots__ = ("num_tokens",)

    def __init__(self) -> None:
        self.num_tokens = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass

    def note(self, event: TokenEvent) -> None:
        pass


class ReplicaState(NamedTuple):
    """State of one of several engines.

    Attributes:
        outage: reason why the engine cannot serve now; None: it can.
        num_restarts: number of restarts of the engine.
        number: number of the engine. The numbers of removed engines are missing.
        estimated, waited: seconds until the prompts of its live requests were computed: the router's
            estimates, and the measured times; None: not counted.
    """

    outage: str | None
    num_restarts: int
    number: int = 0
    estimated: Histogram | None = None
    waited: Histogram | None = None


class EngineClient(ABC):
    """Sends requests and commands to an engine, and returns its results.

    Create a client, await `start`, and await `close` at the end. All methods are called on one event loop.
    """

    @property
    @abstractmethod
    def info(self) -> EngineInfo:
        """Description of the engine. Available once `start` has returned."""

    @property
    @abstractmethod
    def failure(self) -> str | None:
        """Reason why the engine has failed for good; None while it works or may still recover.

        Cheap to read.
        """

    @property
    def outage(self) -> str | None:
        """Reason why the engine cannot serve now: `failure`, or a restart in progress; else None.

        Cheap to read.
        """
        return self.failure

    @property
    def refusal(self) -> NotReadyError | None:
        """Error for new requests while an administrator keeps the engine asleep; else None. Cheap to read."""
        return None

    @property
    def num_restarts(self) -> int:
        """Number of times that the engine was restarted."""
        return 0

    @property
    def num_continued(self) -> int:
        """Number of times that another engine process continued a request that had output."""
        return 0

    @property
    def replicas(self) -> Sequence[ReplicaState]:
        """State of each engine, if there are several; else empty."""
        return ()

    @abstractmethod
    async def start(self) -> None:
        """Wait until the engine is ready.

        Raises:
            ConfigError: the engine cannot start with its settings.
            EngineError: the engine failed to start.
        """

    @abstractmethod
    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        """Send a request and yield its events; the last one has a finish reason.

        Closing the iterator before its end, or cancelling the task that reads it, aborts the request.

        Raises:
            EngineDeadError: the engine has ended, before or during the request.
            RequestError: the request is invalid, or the engine cannot serve it.
            OverloadedError: the engine does not accept more requests now, or sleeps.
            DeadlineError: the request's own timeout has passed.
            EngineError: the engine failed on this request.
        """

    async def watched(self, request: Request, watch: RequestWatch) -> AsyncGenerator[TokenEvent, None]:
        """Do what `generate` does, and report the events to a watch."""
        with watch:
            async with contextlib.aclosing(self.generate(request)) as events:
                async for event in events:
                    if watch.num_tokens and event.token_ids and event.finish_reason is None:
                        watch.num_tokens += len(event.token_ids)
                    else:
                        watch.note(event)
                    yield event

    def seconds_until(self, request: Request) -> float:
        """Return the seconds until the tenant's rate limits allow the request; 0.0: now, or no limits."""
        return 0.0

    def note_end(self, request_id: str, reason: FinishReason) -> None:  # noqa: B027 - may be ignored
        """Record why a reader closes the iterator of `generate` before the engine ends the request.

        For example, the text contains a stop string. Without this call, the request counts as aborted.
        """

    @abstractmethod
    async def embed(self, request: EmbedRequest) -> bytes:
        """Send a request and return its vectors, [number of prompts, dimensions] in float32, little-endian.

        Cancelling the call aborts the request. Raises the same exceptions as `generate`.
        """

    @abstractmethod
    async def stats(self) -> EngineStats:
        """Return the engine's statistics. Raises EngineDeadError if the engine has ended."""

    async def replica_stats(self) -> Sequence[EngineStats | None]:
        """Return the statistics of each engine, in the order of `replicas`; None: the engine does not answer.

        Empty if there is one engine.
        """
        return ()

    @abstractmethod
    async def control(self, command: Command) -> Answer:
        """Send an administrator's command and return its answer.

        Raises:
            EngineDeadError: the engine has ended, before or during the command.
            RequestError: the command cannot be carried out; nothing has changed.
            EngineError: the engine failed on the command.
        """

    @abstractmethod
    async def close(self) -> None:
        """End all requests, and the engine if this client started it."""
