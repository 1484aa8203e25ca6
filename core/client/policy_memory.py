"""Remembers the scheduling policy that an administrator has set, to set it on engines that start later."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from llmfw.core.base.control import SetPolicy

logger = logging.getLogger(__name__)

MAX_DEATHS = 2
WITHIN_S = 3600.0


class PolicyMemory:
    """The policy to set on a restarted engine.

    A policy may hang or crash the engine. If MAX_DEATHS engines die by themselves within WITHIN_S, the policy
    is forgotten. The next engine then has the policy of the server's settings.

    Args:
        clock: monotonic clock in seconds.

    Attributes:
        command: command that sets the policy; None: keep the policy of the settings.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.command: SetPolicy | None = None
        self._clock = clock
        self._deaths: list[float] = []

    def remember(self, command: SetPolicy) -> None:
        """Remember the policy that a command has set on an engine."""
        self.command = command
        self._deaths.clear()

    def note_death(self) -> None:
        """Count the death of an engine that died by itself."""
        if self.command is None:
            return
        now = self._clock()
        self._deaths = [*(death for death in self._deaths if now - death < WITHIN_S), now]
        if len(self._deaths) >= MAX_DEATHS:
            logger.error(
                "The policy %s, which was set while the server ran, is not set again: %d engines died under it. "
                "The next engine has the policy of --policy.",
                *(self.command.name, len(self._deaths)),
            )
            self.command = None
