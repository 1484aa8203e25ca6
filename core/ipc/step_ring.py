"""Keeps the sizes of an engine's last steps in memory that another process can read, also after a SIGKILL."""

from __future__ import annotations

import struct
import time
from typing import NamedTuple

from llmfw.core.base.step_sizes import StepSizes

NUM_STEPS = 256
"""Number of steps that a ring keeps. The oldest may be overwritten while it is read, so readers get one less."""

_COUNT = struct.Struct("<q")
_STEP = struct.Struct(f"<qq{len(StepSizes._fields)}q")

RING_BYTES = _COUNT.size + NUM_STEPS * _STEP.size
"""Size of a ring in bytes."""


class StepRecord(NamedTuple):
    """A step of an engine.

    Attributes:
        number: number of the step, from 1.
        started_at: time of the step's start, in seconds since the epoch.
        sizes: sizes of the step.
    """

    number: int
    started_at: float
    sizes: StepSizes


class StepRing:
    """The last steps of an engine. One thread writes; any process may read.

    Args:
        buffer: RING_BYTES of memory; zeros, or a ring that another `StepRing` has written to.
    """

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._count: int = _COUNT.unpack_from(buffer)[0]

    def add(self, sizes: StepSizes) -> None:
        """Add a step that starts now."""
        offset = _COUNT.size + self._count % NUM_STEPS * _STEP.size
        self._count += 1
        _STEP.pack_into(self._buffer, offset, self._count, time.time_ns(), *sizes)
        _COUNT.pack_into(self._buffer, 0, self._count)

    def steps(self) -> list[StepRecord]:
        """Return the last steps, the oldest first."""
        count: int = _COUNT.unpack_from(self._buffer)[0]
        return [self._step(number) for number in range(max(0, count - NUM_STEPS + 1), count)]

    def _step(self, index: int) -> StepRecord:
        offset = _COUNT.size + index % NUM_STEPS * _STEP.size
        number, started_ns, *sizes = _STEP.unpack_from(self._buffer, offset)
        return StepRecord(number, started_ns / 1e9, StepSizes(*sizes))
