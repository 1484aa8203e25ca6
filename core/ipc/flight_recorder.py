"""Keeps an engine's last steps, log lines and stacks, however the engine process ends.

The engine writes them to memory that it shares with its client. The client reads them after the engine's end,
for crash reports. Nothing is sent, and nothing is written to a disk.
"""

from __future__ import annotations

import faulthandler
import logging
import mmap
import os
import signal

import msgspec

from llmfw.core.base.recent_log import RecentLogHandler
from llmfw.core.base.step_sizes import StepSizes
from llmfw.core.base.text_ring import TextRing

from .memory_file import new_memory_file
from .step_ring import RING_BYTES, StepRecord, StepRing

LOG_BYTES = 64 * 1024
"""Size of the last log lines that are kept, in bytes."""
STACK_BYTES = 256 * 1024
"""Size of the stacks that are kept, in bytes: enough for about 100 threads."""
WRITE_STACKS = signal.SIGUSR2
"""Signal that makes an engine write its stacks to its flight recorder. SIGUSR1 writes stacks to stderr."""


class FlightFiles(msgspec.Struct, frozen=True):
    """Descriptors of the memory that an engine and its client share.

    Attributes:
        steps: ring of the last steps.
        log: ring of the last log lines.
        stacks: file of zeros. A dump of the threads' stacks is written over its beginning.
        keeps_messages: whether log lines have their texts, which may quote a request.
    """

    steps: int
    log: int
    stacks: int
    keeps_messages: bool = False

    @property
    def descriptors(self) -> tuple[int, int, int]:
        """All descriptors, for the engine process to inherit."""
        return self.steps, self.log, self.stacks


class FlightReader:
    """The client's side of a flight recorder: creates the memory, and reads it.

    Args:
        keeps_messages: see `FlightFiles`.

    Attributes:
        files: the descriptors, until `close_files`.
    """

    def __init__(self, *, keeps_messages: bool = False) -> None:
        self.files = FlightFiles(
            new_memory_file("llmfw-steps", RING_BYTES),
            new_memory_file("llmfw-log", LOG_BYTES),
            new_memory_file("llmfw-stacks", STACK_BYTES),
            keeps_messages,
        )
        self._steps = StepRing(_mapped(self.files.steps, RING_BYTES))
        self._log = TextRing(_mapped(self.files.log, LOG_BYTES))
        self._stacks = _mapped(self.files.stacks, STACK_BYTES)

    def close_files(self) -> None:
        """Close the descriptors in `files`, after the engine process has inherited them."""
        for descriptor in self.files.descriptors:
            os.close(descriptor)

    def steps(self) -> list[StepRecord]:
        """Return the last steps, the oldest first."""
        return self._steps.steps()

    def log(self) -> str:
        """Return the last lines of the engine's log."""
        return self._log.text()

    def stacks(self) -> str:
        """Return the stacks that the engine has written; "" if there are none."""
        return bytes(self._stacks).partition(b"\0")[0].decode(errors="replace")


class FlightRecorder:
    """The engine's side of a flight recorder.

    Args:
        files: descriptors from the client. This object closes `steps` and `log`.
    """

    def __init__(self, files: FlightFiles) -> None:
        self._files = files
        self._steps = StepRing(_mapped(files.steps, RING_BYTES))
        self._log = TextRing(_mapped(files.log, LOG_BYTES))
        os.close(files.steps)
        os.close(files.log)

    def note_step(self, sizes: StepSizes) -> None:
        """Record a step that starts now."""
        self._steps.add(sizes)

    def take_log(self) -> None:
        """Record all later lines of this process's log, in addition to its usual output."""
        handler = RecentLogHandler(self._log, keeps_messages=self._files.keeps_messages)
        logging.getLogger().addHandler(handler)

    def take_stacks(self) -> None:
        """Record the stacks of all threads at a crash such as SIGSEGV, and at WRITE_STACKS.

        These stacks are then not written to stderr. Only SIGUSR1 still writes stacks to stderr.
        """
        faulthandler.enable(self._files.stacks)
        faulthandler.register(WRITE_STACKS, self._files.stacks)


def _mapped(descriptor: int, size: int) -> memoryview:
    return memoryview(mmap.mmap(descriptor, size))
