"""Marks the batch lines that this process is working on, in a file that survives a crash of the process.

The file is mapped into memory: setting a mark costs no system call, and the kernel keeps the marks if the
process is killed. The next process reads which lines the last one was working on when it died.

A line that waits for the engine is not marked. The API process does no work for such a line, so the line
cannot crash the API process.
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
MAX_FILES = 16  # most processes that can share a folder
NUM_SLOTS = 1024  # most lines that can be marked at once; further ones are not marked
SLOT = 128  # bytes per mark: whether it is set, line number, length of the job's id, the id
HEAD = struct.Struct("<BIB")
WHOLE_JOB = 0
"""Line number that represents work on a job as a whole: validating its input or writing its files."""

Found = Mapping[str, frozenset[int]]
"""Maps a job's id to the numbers of its marked lines."""


class Mark:
    """Marks one batch line as being worked on by this process.

    A new mark is set. The mark is cleared while all of the line's requests wait for the engine.

    Args:
        slot: bytes of the mark in the file; None: the mark is not stored, because the file is full or not
            used.
        head: bytes at the start of the slot while the mark is set.

    Attributes:
        was_sent: whether a request of this line was sent to the engine.
    """

    def __init__(self, slot: memoryview | None, head: bytes) -> None:
        self.was_sent = False
        self._slot = slot
        self._head = head
        self._num_streams = 0
        self._num_waiting = 0

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """Count an engine request of the line while the block runs. Several requests may run at once."""
        self.was_sent = True
        self._num_streams += 1
        try:
            yield
        finally:
            self._num_streams -= 1

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a wait for the engine while the block runs. The mark is cleared while all requests wait."""
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
"""The mark of the line that the current task is working on."""


class WorkMarks:
    """The marks of this process, and the marks that earlier processes left.

    Args:
        folder: folder of the file with the marks; None: marks are not stored.

    Attributes:
        found: lines that were marked by processes that died.
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
        """Mark a line as being worked on while the block runs."""
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
        """Close the file and release its lock. Callers must not set marks afterwards."""
        self._free.clear()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self, folder: Path) -> Found:
        """Open this process's file of marks; return the marks that ended processes left.

        A file that no process has locked belongs to an ended process. The first such file, or a new one, is
        cleared and becomes this process's; the others are deleted.
        """
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
            # Without allocated disk space, writing to the mapped file could raise SIGBUS.
            os.posix_fallocate(file, 0, SLOT * NUM_SLOTS)
            view = memoryview(mmap.mmap(file, SLOT * NUM_SLOTS))
        except BaseException:
            os.close(file)
            raise
        self._file = file
        self._free = [view[i * SLOT : (i + 1) * SLOT] for i in range(NUM_SLOTS)]


def _locked(path: Path) -> int | None:
    """Open and lock a file; return its file descriptor, or None if another process holds the lock."""
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
