"""Remembers the settings that an administrator has changed at run time, for engines that start later."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from llmfw.core.base.control import Answer, Command, LogLevelInfo, PinPrefix, SetLogLevel, SetPolicy

from .adapter_memory import AdapterMemory
from .policy_memory import PolicyMemory

logger = logging.getLogger(__name__)


class RunTimeSettings:
    """The log level, the policy and the adapters to set on a restarted engine. Pinned prefixes are lost.

    Attributes:
        adapters: the adapters.
    """

    def __init__(self) -> None:
        self.adapters = AdapterMemory()
        self._policy = PolicyMemory()
        self._log_level: SetLogLevel | None = None
        self._has_pins = False

    def remember(self, command: Command) -> None:
        """Remember a policy or a log level for engines that start from now on."""
        if isinstance(command, SetPolicy):
            self._policy.remember(command)
        elif isinstance(command, SetLogLevel):
            self._log_level = command

    def put_off(self, command: Command) -> Answer | None:
        """Answer a command that an engine can carry out when it starts; None: the command needs a running engine."""
        if not isinstance(command, SetLogLevel):
            return None
        self.remember(command)
        return LogLevelInfo(command.level)

    def note(self, command: Command, answer: Answer) -> None:
        """Remember the settings that a command has changed on an engine."""
        self.remember(command)
        self._has_pins = self._has_pins or isinstance(command, PinPrefix)
        self.adapters.note(answer)

    def note_death(self) -> None:
        """Count the death of an engine that died by itself (see `PolicyMemory`)."""
        self._policy.note_death()

    async def restore(self, ask: Callable[[Command], Awaitable[Answer]]) -> None:
        """Apply the remembered settings to a new engine.

        Args:
            ask: sends a command to the new engine.
        """
        applied: object = None
        # All of them may change meanwhile; loading adapters takes long.
        while applied != (wanted := (self._log_level, self._policy.command, self.adapters.paths)):
            for command in wanted[:2]:
                if command is not None:
                    await ask(command)
            await self.adapters.restore(ask)
            applied = wanted
        if self._has_pins:
            logger.warning("The pinned prefixes of the engine that ended are lost; pin them again")
            self._has_pins = False
