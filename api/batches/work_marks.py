"""Marks of the batch lines that this process works on now, kept where a crash cannot erase them.

The marks are a file that is mapped into memory. Setting a mark costs no system call, and the kernel keeps the written
marks if the process is killed. The next process reads which lines the last one worked on when it died.

A line that waits for the engine is not marked: the API process does no work for it, so the line cannot have crashed it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path

logger = logging.getLogger(__name__)

NAME = "batch_marks"
MAX_FILES = 16  # processes that share a folder
NUM_SLOTS = 1024  # lines in flight that can be marked; more are not
SLOT = 128  # bytes: whether it is set, line number, length of the job's id, the id
HEAD = struct.Struct("<BIB")
WHOLE_JOB = 0
"""The line number that stands for work on a job as a whole: validating its input or writing its files."""

Found = Mapping[str, frozenset[int]]
"""A job's id → the lines that were marked."""


class Mark:
    """The mark of one line. It is set from the start, except while the line waits for the engine.

    Args:
        slot: bytes of the mark in the file; None: the file has no room, and the mark is not stored.
        head: bytes at the start of the slot while the mark is set.

    Attributes:
        was_sent: whether the engine has, or had, a request of this line.
    """

    def __init__(self, slot: memoryview | None, head: bytes) -> None:
        self.was_sent = False
        self._slot = slot
        self._head = head
        self._num_streams = 0
        self._num_waiting = 0

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """Enclose a request that the engine runs for the line. Several requests may run at once."""
        self.was_sent = True
        self._num_streams += 1
        try:
            yield
        finally:
            self._num_streams -= 1

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Enclose a wait for the engine. The mark is not set while all streams of the line wait."""
        self._num_waiting += 1
        if self._num_waiting >= self._num_streams:
            self._set(False)
        try:
            yield
        finally:
            self._num_waiting -= 1
            self._set(True)

    def _set(self, is_set: bool) -> None:
        if self._slot is not None:
            self._slot[: HEAD.size] = self._head if is_set else bytes(HEAD.size)


current_mark: ContextVar[Mark | None] = ContextVar("current_mark", default=None)
"""The mark of the line that a task works on."""


class WorkMarks:
    """The marks of this process, and the marks that earlier processes left.

    Args:
        folder: folder of the file; None: marks are not stored, so a crash leaves no trace.

    Attributes:
        found: the marks of processes that ended without `close`.
    """

    def __init__(self, folder: Path | None) -> None:
        self.found: Found = {}
        self._file: int | None = None
        self._free: list[memoryview] = []
        if folder is not None:
            try:
                self.found = self._open(folder)
            except OSError as error:
                logger.warning("Batch lines that crash this server cannot be found after it: %s", error)

    @contextlib.contextmanager
    def marked(self, job: str, line: int) -> Iterator[Mark]:
        """Mark a line for the length of a block."""
        name = job.encode("ascii", "replace")
        slot = self._free.pop() if self._free and len(name) <= SLOT - HEAD.size else None
        head = HEAD.pack(1, line, len(name))
        if slot is not None:
            slot[HEAD.size : HEAD.size + len(name)] = name
        mark = Mark(slot, head)
        mark._set(True)
        try:
            yield mark
        finally:
            mark._set(False)
            if slot is not None:
                self._free.append(slot)

    def close(self) -> None:
        """Release the file. No mark may be set any more."""
        self._free.clear()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self, folder: Path) -> Found:
        """Take the first file that no other process holds, and read all files of processes that have ended."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found: dict[str, set[int]] = defaultdict(set)
        for number in range(MAX_FILES):
            path = folder / f"{NAME}.{number}"
            if self._file is not None and not path.exists():
                continue
            file = _locked(path)
            if file is None:
                continue
            for job, line in _marks_in(os.pread(file, SLOT * NUM_SLOTS, 0)):
                found[job].add(line)
            if self._file is None:
                self._map(file)
            else:
                path.unlink()
                os.close(file)
        return {job: frozenset(lines) for job, lines in found.items()}

    def _map(self, file: int) -> None:
        try:
            os.ftruncate(file, 0)
            # Writing to a page without room on the disk would raise SIGBUS.
            os.posix_fallocate(file, 0, SLOT * NUM_SLOTS)
            view = memoryview(mmap.mmap(file, SLOT * NUM_SLOTS))
        except BaseException:
            os.close(file)
            raise
        self._file = file
        self._free = [view[i * SLOT : (i + 1) * SLOT] for i in range(NUM_SLOTS)]


def _locked(path: Path) -> int | None:
    """Return the descriptor of a file that no other process holds, locked until it is closed; else None."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def _marks_in(data: bytes) -> Iterator[tuple[str, int]]:
    for start in range(0, len(data) - SLOT + 1, SLOT):
        is_set, line, length = HEAD.unpack_from(data, start)
        if is_set:
            name = data[start + HEAD.size : start + HEAD.size + length]
            yield name.decode("ascii", "replace"), line
