"""Dispatches administrators' commands to the objects of a running engine that carry them out."""

from __future__ import annotations

import msgspec

from llmfw.core.base.control import (
    Answer,
    EngineCommand,
    FlushCache,
    GetPolicy,
    GetTrace,
    ListAdapters,
    LoadAdapter,
    PinPrefix,
    SetPolicy,
    UnloadAdapter,
    UnpinPrefix,
    ViewCache,
)
from llmfw.core.base.errors import RequestError
from llmfw.core.base.steps_view import ViewSteps
from llmfw.core.schedule.cache.keeper import CacheKeeper
from llmfw.core.schedule.decision_log import DecisionLog
from llmfw.core.schedule.scheduler import Scheduler

from .adapters import EngineAdapters
from .policy_choice import PolicyChoice


class Administration:
    """Carries out commands of administrators for an engine that generates. Called between two steps.

    Args:
        scheduler: scheduler whose policy is changed.
        policies: the current policy, and the available ones.
        keeper: keeper of the prefix cache.
        decisions: traced scheduling decisions; None: none are traced.
        adapters: the engine's adapters.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        policies: PolicyChoice,
        keeper: CacheKeeper,
        decisions: DecisionLog | None,
        adapters: EngineAdapters,
    ) -> None:
        self._adapters = adapters
        self._scheduler = scheduler
        self._policies = policies
        self._keeper = keeper
        self._decisions = decisions

    def answer(self, command: EngineCommand) -> Answer:
        """Carry out a command.

        Raises:
            RequestError: the command cannot be carried out; nothing has changed.
        """
        self._keeper.tick()  # pins expire by the clock, even while no step runs
        self._adapters.tick()
        match command:
            case GetPolicy():
                return self._policies.info()
            case SetPolicy():
                self._scheduler.policy = self._policies.change(command.name, command.options)
                return self._policies.info()
            case ViewCache():
                return self._keeper.view(command.most)
            case FlushCache():
                if command.only_idle:
                    self._check_idle()
                return self._keeper.flush()
            case PinPrefix():
                salt = self._adapters.salt_of(command.adapter, command.salt)
                return self._keeper.pin(msgspec.structs.replace(command, salt=salt))
            case UnpinPrefix():
                return self._keeper.unpin(command.id)
            case GetTrace():
                return self._traced().find(command.id)
            case ViewSteps():
                return self._scheduler.view_steps(command.after)
            case LoadAdapter():
                self._adapters.load(command.name, command.path)
            case UnloadAdapter():
                self._adapters.unload(command.name)
            case ListAdapters():
                pass
        return self._adapters.list()

    def _check_idle(self) -> None:
        running, waiting = self._scheduler.num_running, self._scheduler.num_waiting
        if running or waiting:
            raise RequestError(
                f"{running} requests run and {waiting} wait; the whole cache can be emptied once they have ended: try again "
                "then, or use POST /admin/cache/flush, which keeps what they hold",
                code="requests_running",
            )

    def _traced(self) -> DecisionLog:
        if self._decisions is None:
            raise RequestError(
                "tracing is off; start the server with --trace-requests N to keep what is decided about the last N "
                "requests",
                code="unsupported_operation",
            )
        return self._decisions
