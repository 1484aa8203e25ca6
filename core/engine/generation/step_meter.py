"""Measures how long the phases of the engine's steps take."""

from __future__ import annotations

import time
from collections.abc import Callable

from llmfw.core.base.engine_info import StepSeconds

PLAN, FORWARD, SAMPLE, WAIT, COMMIT = range(5)
"""The phases of a step, in the order of the fields of `StepSeconds`, which says what belongs to each."""


class StepMeter:
    """Adds up the seconds of each phase of all steps.

    A step calls `begin`, and then `end` at the end of each phase. All time of a step belongs to a phase.

    Args:
        clock: monotonic clock in seconds.

    Attributes:
        num_steps: number of steps that computed something.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.num_steps = 0
        self._seconds = [0.0] * (COMMIT + 1)
        self._clock = clock
        self._since = clock()

    @property
    def seconds(self) -> StepSeconds:
        """Seconds of each phase since start."""
        return StepSeconds(*self._seconds)

    def begin(self) -> None:
        """Start a step: the time since the last phase belongs to none."""
        self._since = self._clock()

    def end(self, phase: int) -> None:
        """End a phase: the time since the end of the one before belongs to it."""
        now = self._clock()
        self._seconds[phase] += now - self._since
        self._since = now
        if phase == FORWARD:
            self.num_steps += 1
