"""Reports the activity of an engine process in a page of memory, which its client can read at any time.

The engine writes four integers and never waits. A report costs less than a microsecond, and the client can read it while
a native call holds the engine's interpreter lock. `client.watchdog` judges what is read here.
"""

from __future__ import annotations

import enum
import mmap
import os
import tempfile
import threading
import time
from typing import NamedTuple

BEAT_S = 0.5
"""Seconds between two beats of a process that is alive."""

_SIZE = mmap.PAGESIZE
_BEATS, _PROGRESS, _PHASE, _NUM_TOKENS = range(4)


class Phase(enum.IntEnum):
    """Activity of the engine's main thread."""

    BUILDING = 0  # imports, weights, allocation: no time limit
    IDLE = 1  # waits for a message
    BUSY = 2  # handles messages, or does work between steps
    STEP = 3  # computes a step


class Reading(NamedTuple):
    """One reading of the page.

    Attributes:
        beats: counter that grows while the process runs, whatever its main thread does.
        progress: counter that grows whenever the main thread has finished something.
        phase: phase of the main thread.
        num_tokens: number of tokens in the current step, in the phase STEP.
    """

    beats: int
    progress: int
    phase: Phase
    num_tokens: int


def new_page() -> int:
    """Return the file descriptor of a new page, to be inherited by the engine process. The caller closes it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("llmfw-heartbeat")
    else:  # macOS
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, _SIZE)
    return descriptor


class HeartbeatReader:
    """The client's side of the shared-memory page.

    Args:
        descriptor: file descriptor of the page; may be closed afterwards.
    """

    def __init__(self, descriptor: int) -> None:
        self._page = memoryview(mmap.mmap(descriptor, _SIZE)).cast("q")

    def read(self) -> Reading:
        """Return the engine's last report."""
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
        """Start a thread that beats from now on. It needs the interpreter lock for each beat."""
        threading.Thread(target=self._beat, name="llmfw-heartbeat", daemon=True).start()

    def idle(self) -> None:
        """Report that the engine waits for messages, without a time limit."""
        self._report(Phase.IDLE)

    def busy(self) -> None:
        """Report that the engine has finished something, and continues."""
        self._report(Phase.BUSY)

    def step(self, num_tokens: int) -> None:
        """Report that a step starts."""
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
