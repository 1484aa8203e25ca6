"""The interface through which all code outside the engine uses an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator

from llmfw.core.base.control import Answer, Command
from llmfw.core.base.engine_info import EngineInfo, EngineStats
from llmfw.core.base.request import EmbedRequest, Request, TokenEvent


class EngineClient(ABC):
    """Generates token ids for requests. All methods are called on one event loop."""

    @property
    @abstractmethod
    def info(self) -> EngineInfo:
        """Description of the engine. Available once `start` has returned."""

    @property
    @abstractmethod
    def failure(self) -> str | None:
        """Reason why the engine has failed for good; None while it works or may still recover. Takes no time."""

    @property
    def outage(self) -> str | None:
        """Reason why nothing can be generated now: `failure`, or a restart in progress; else None. Takes no time."""
        return self.failure

    @property
    def num_restarts(self) -> int:
        """Number of restarts of the engine."""
        return 0

    @abstractmethod
    async def start(self) -> None:
        """Wait until the engine is ready. Raises a ConfigError or EngineError with its reason if it is not."""

    @abstractmethod
    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        """Send a request and yield its events; the last one has a finish reason.

        Closing the iterator (or cancelling the task that reads it) before its end aborts the request.

        Raises:
            EngineDeadError: the engine has ended, before or meanwhile.
            RequestError: the engine does not accept the request, or what it asks for cannot be had.
            OverloadedError: it does not accept it now.
            DeadlineError: the request's own timeout has passed.
            EngineError: the engine failed on this request.
        """

    @abstractmethod
    async def embed(self, request: EmbedRequest) -> bytes:
        """Send a request and return its vectors, [number of prompts, dimensions] in float32, little-endian.

        Cancelling it aborts the request. Raises as `generate` does.
        """

    @abstractmethod
    async def stats(self) -> EngineStats:
        """Ask the engine for its figures."""

    @abstractmethod
    async def control(self, command: Command) -> Answer:
        """Send an administrator's command and return its answer.

        Raises:
            EngineDeadError: the engine has ended, before or meanwhile.
            RequestError: the command cannot be carried out; nothing has changed.
            EngineError: the engine failed on it.
        """

    @abstractmethod
    async def close(self) -> None:
        """End all requests, and the engine if this client started it."""
