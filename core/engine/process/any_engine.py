"""The common interface of the engine that generates and the engine that embeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from llmfw.core.base.control import Answer, EngineCommand
from llmfw.core.base.engine_info import EngineInfo, EngineStats
from llmfw.core.base.request import TokenEvent
from llmfw.core.base.step_sizes import StepSizes
from llmfw.core.schedule.cache.cache_journal import CacheJournal


class AnyEngine(Protocol):
    """An `Engine`, which generates, or an `EmbeddingEngine`.

    Not thread-safe: only one thread may call its methods.
    """

    info: EngineInfo

    @property
    def cache_journal(self) -> CacheJournal | None:
        """Changes of the prefix cache; None if they are not recorded."""

    @property
    def has_own_threads(self) -> bool:
        """Whether the model computes nearly all of a step on threads other than torch's."""

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do."""

    @property
    def sleep_s(self) -> float | None:
        """Seconds until `has_work` or `has_background_work` becomes true without a new message; None: both stay
        false until a message comes."""

    @property
    def has_background_work(self) -> bool:
        """Whether `do_background_work` has anything to do."""

    def do_background_work(self) -> None:
        """Do a few milliseconds of background work; called while no request waits."""

    def add(self, request: Any) -> None:
        """Accept a `Request` or an `EmbedRequest`, depending on `info.task`.

        Raises:
            RequestError: the request cannot be served.
            OverloadedError: the queue is full.
        """

    def call_when_ready(self, wake: Callable[[], None]) -> None:
        """Register a function to call, in any thread, when something other than `add` makes `has_work`
        true."""

    def call_before_steps(self, report: Callable[[StepSizes], None]) -> None:
        """Register a function to call with each step's sizes, before the step is computed."""

    def abort(self, request_id: str) -> None:
        """End a request without an event. Unknown ids are ignored."""

    def step(self) -> list[TokenEvent]:
        """Run one step; return its events."""

    def stats(self) -> EngineStats:
        """Return the statistics of the engine."""

    def control(self, command: EngineCommand) -> Answer:
        """Carry out an administrator's command.

        Raises:
            RequestError: the command cannot be carried out; nothing has changed.
        """
