"""Reports the activity of an engine process in a page of shared memory, which the client can read at any
time.

The engine writes four integers and never waits. A report costs less than a microsecond, and the client can
read it even while a native call holds the engine's interpreter lock. From the reports, `client.watchdog`
decides whether the engine hangs.
"""

from __future__ import annotations

import enum
import mmap
import os
import threading
import time
from typing import NamedTuple

from llmfw.core.ipc.memory_file import new_memory_file

BEAT_S = 0.5
"""Seconds between two beats of a running process."""

_SIZE = mmap.PAGESIZE
_BEATS, _PROGRESS, _PHASE, _NUM_TOKENS = range(4)


class Phase(enum.IntEnum):
    """Activity of the engine's main thread."""

    BUILDING = 0  # imports, weights, allocation: no time limit
    IDLE = 1  # waits for a message
    BUSY = 2  # handles messages, or does work between steps
    STEP = 3  # computes a step


class Reading(NamedTuple):
    """The contents of the shared-memory page at one moment.

    Attributes:
        beats: counter that grows while the process runs, whatever its main thread does.
        progress: counter that grows with each report of the main thread.
        phase: phase of the main thread.
        num_tokens: number of tokens of the current step; meaningful only in the phase STEP.
    """

    beats: int
    progress: int
    phase: Phase
    num_tokens: int


def new_page() -> int:
    """Create the shared-memory page; return its file descriptor, for the engine process to inherit.

    The caller must close the descriptor.
    """
    return new_memory_file("llmfw-heartbeat", _SIZE)


class HeartbeatReader:
    """The client's side of the shared-memory page.

    Args:
        descriptor: file descriptor of the page. The caller may close it afterwards.
    """

    def __init__(self, descriptor: int) -> None:
        self._page = memoryview(mmap.mmap(descriptor, _SIZE)).cast("q")

    def read(self) -> Reading:
        """Return the current contents of the page."""
        page = self._page
        return Reading(page[_BEATS], page[_PROGRESS], Phase(page[_PHASE]), page[_NUM_TOKENS])


class Heartbeat:
    """The engine's side of the shared-memory page. Only the thread that runs the engine calls the methods.

    Args:
        descriptor: file descriptor of the page, which this object closes; None: a private page.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            self._page = memoryview(bytearray(_SIZE)).cast("q")
        else:
            self._page = memoryview(mmap.mmap(descriptor, _SIZE)).cast("q")
            os.close(descriptor)
        self._progress = 0

    def start_beating(self) -> None:
        """Start a thread that beats every BEAT_S seconds. Each beat needs the interpreter lock."""
        threading.Thread(target=self._beat, name="llmfw-heartbeat", daemon=True).start()

    def idle(self) -> None:
        """Report that the engine waits for messages, without a time limit."""
        self._report(Phase.IDLE)

    def busy(self) -> None:
        """Report that the engine has made progress and continues to work."""
        self._report(Phase.BUSY)

    def step(self, num_tokens: int) -> None:
        """Report that a step of `num_tokens` tokens starts."""
        self._page[_NUM_TOKENS] = num_tokens
        self._report(Phase.STEP)

    def _report(self, phase: Phase) -> None:
        self._progress += 1
        self._page[_PHASE] = phase
        self._page[_PROGRESS] = self._progress

    def _beat(self) -> None:
        while True:
            self._page[_BEATS] += 1
            time.sleep(BEAT_S)
