"""Measures how long the device computes each step, and how long it is idle between steps.

    device   ─[ forward n, sample n ]──idle──[ forward n+1, sample n+1 ]─
              begin              end          begin                  end

A step starts when its forward pass is launched, so copies and planning before that count as idle time. Only
`take` waits for the device.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import torch


@dataclass(frozen=True, slots=True)
class StepTime:
    """Device time of one step.

    Attributes:
        idle_ms: milliseconds from the end of the previous step to the start of this one; never negative.
        busy_ms: milliseconds from the start to the end of the step.
    """

    idle_ms: float
    busy_ms: float


class StepClock:
    """Measures the steps of the engine that it is passed to (see `build_generation_engine`).

    Args:
        device: device on which the steps run.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._marks: list[tuple[torch.cuda.Event | float, torch.cuda.Event | float]] = []
        self._begun: torch.cuda.Event | float | None = None

    def begin(self) -> None:
        """Mark the start of a step on the current stream."""
        self._begun = self._mark()

    def end(self) -> None:
        """Mark the end of the step on the current stream."""
        assert self._begun is not None, "a step ends that has not begun"
        self._marks.append((self._begun, self._mark()))

    def take(self) -> list[StepTime]:
        """Wait for the steps marked since the last call, and return their times.

        Leaves out the very first step, because no step precedes it.
        """
        marks, self._marks = self._marks, self._marks[-1:]
        if marks and isinstance(marks[-1][1], torch.cuda.Event):
            marks[-1][1].synchronize()
        return [
            StepTime(max(0.0, _between(before[1], begun)), _between(begun, ended))
            for before, (begun, ended) in pairwise(marks)
        ]

    def _mark(self) -> torch.cuda.Event | float:
        if not self._is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def _between(first: torch.cuda.Event | float, second: torch.cuda.Event | float) -> float:
    """Return the milliseconds between two marks."""
    if isinstance(first, torch.cuda.Event):
        assert isinstance(second, torch.cuda.Event)
        return float(first.elapsed_time(second))
    assert isinstance(second, float)
    return 1000 * (second - first)
