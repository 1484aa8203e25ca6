"""Decides from an engine's heartbeat whether the engine hangs.

An engine hangs if it makes no progress, or gives no sign of life, for longer than `WatchdogLimits` allow.
Time counts only while the watchdog itself runs, so a slow or suspended machine does not count as a hang.
Ending a hung engine is the caller's task.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from llmfw.core.engine.process.heartbeat import Phase, Reading

LOOK_S = 0.5
"""Seconds between two checks."""
SILENT_S = 10.0
"""Seconds without any sign of life after which a process counts as hung."""
QUIET_S = 2.0
"""Seconds without any sign of life after which new requests go to other engines, if there are any."""

_MOST_COUNTED_S = 2 * LOOK_S


class WatchdogLimits(msgspec.Struct, frozen=True):
    """Time limits of an engine.

    Attributes:
        step_s: maximum number of seconds between two reports of progress by the main thread. A step must end
            within this time.
        silent_s: maximum number of seconds without any sign of life: no beat, no progress, no CPU time used.
    """

    step_s: float = 300.0
    silent_s: float = SILENT_S

    @classmethod
    def of(cls, timeout_s: float) -> WatchdogLimits | None:
        """Return the limits for `--watchdog-timeout`; None for 0, which turns the watchdog off."""
        return cls(timeout_s, min(SILENT_S, timeout_s)) if timeout_s else None


class ProcessState(NamedTuple):
    """State of a process, from the operating system.

    Attributes:
        is_stopped: whether SIGSTOP or a debugger has stopped it.
        ticks: CPU time that the process has used, in clock ticks.
    """

    is_stopped: bool
    ticks: int


def state_of(pid: int) -> ProcessState | None:
    """Return the state of a process; None if it has ended, or the system does not report it."""
    if sys.platform != "linux":
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return ProcessState(fields[0] in "Tt", int(fields[11]) + int(fields[12]))


class Hang(NamedTuple):
    """Why an engine counts as hung.

    Attributes:
        reason: reason for the log, `/health` and clients.
        is_stopped: whether SIGSTOP or a debugger has stopped the process; it then cannot handle signals.
    """

    reason: str
    is_stopped: bool


class Watchdog:
    """Checks one engine process. The caller calls `look` every `LOOK_S` seconds.

    Args:
        limits: time limits; an engine that exceeds one counts as hung.
        read: function that returns the heartbeat.
        state: function that returns the state of the process.
        clock: monotonic clock in seconds.
    """

    def __init__(
        self,
        limits: WatchdogLimits,
        read: Callable[[], Reading],
        state: Callable[[], ProcessState | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._read = read
        self._state = state
        self._clock = clock
        self._looked_at = clock()
        self._last = read()
        self._ticks = 0
        self._silent_s = 0.0
        self._stuck_s = 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether the last checks found no sign of life. The process may hang, or get no processor time."""
        return self._silent_s >= QUIET_S

    def look(self) -> Hang | None:
        """Check the process once; return the hang, or None if the process does not hang."""
        now = self._clock()
        elapsed = min(now - self._looked_at, _MOST_COUNTED_S)
        self._looked_at = now
        last, reading = self._last, self._read()
        self._last = reading
        has_progressed = reading.progress != last.progress
        waits = reading.phase in (Phase.IDLE, Phase.BUILDING)
        self._stuck_s = 0.0 if has_progressed or waits else self._stuck_s + elapsed
        if has_progressed or reading.beats != last.beats:
            self._silent_s = 0.0
            return self._stuck(reading)
        return self._silent(reading, elapsed) or self._stuck(reading)

    def _stuck(self, reading: Reading) -> Hang | None:
        if self._stuck_s < self._limits.step_s:
            return None
        what = (
            f"in a step of {reading.num_tokens} tokens"
            if reading.phase is Phase.STEP
            else "between two steps"
        )
        return Hang(f"the engine hangs: it has been {what} for {self._stuck_s:.0f} s", is_stopped=False)

    def _silent(self, reading: Reading, elapsed: float) -> Hang | None:
        """Add to the time without a sign of life, unless the process used CPU time; return the hang, or None.

        Called if a check found no beat and no progress.
        """
        state = self._state()
        is_stopped = state is not None and state.is_stopped
        if state is not None and not is_stopped and state.ticks != self._ticks:
            self._ticks = state.ticks
            self._silent_s = 0.0
            return None
        self._silent_s += elapsed
        # Importing a library from a slow disk may hold the interpreter lock for long without using CPU time.
        is_patient = reading.phase is Phase.BUILDING and not is_stopped
        if self._silent_s < (self._limits.step_s if is_patient else self._limits.silent_s):
            return None
        why = "it was stopped by SIGSTOP or a debugger" if is_stopped else "it neither runs nor answers"
        return Hang(f"the engine hangs: no sign of life for {self._silent_s:.0f} s; {why}", is_stopped)
