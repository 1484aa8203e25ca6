"""Measures how long the phases of the engine's steps take."""

from __future__ import annotations

import time
from collections.abc import Callable

from llmfw.core.base.engine_info import StepSeconds


class StepMeter:
    """Adds up the seconds of each phase of all steps.

    A step calls `begin`, and then the method of each phase at the phase's end. All time of a step belongs to a phase.

    Args:
        clock: monotonic clock in seconds.

    Attributes:
        num_steps: number of steps that computed something.
        seconds: seconds of each phase since start.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.num_steps = 0
        self.seconds = StepSeconds()
        self._clock = clock
        self._since = clock()

    def begin(self) -> None:
        """Start a step: the time since the last phase belongs to none."""
        self._since = self._clock()

    def planned(self) -> None:
        """End the phase in which the scheduler planned the step."""
        self.seconds.plan += self._lap()

    def forwarded(self) -> None:
        """End the forward pass, or its launch if the device computes it later."""
        self.num_steps += 1
        self.seconds.forward += self._lap()

    def sampled(self) -> None:
        """End the phase in which masks were filled and tokens sampled, or their sampling launched."""
        self.seconds.sample += self._lap()

    def waited(self) -> None:
        """End the wait for the device."""
        self.seconds.wait += self._lap()

    def committed(self) -> None:
        """End the phase in which tokens were appended and events created."""
        self.seconds.commit += self._lap()

    def _lap(self) -> float:
        now = self._clock()
        seconds, self._since = now - self._since, now
        return seconds
