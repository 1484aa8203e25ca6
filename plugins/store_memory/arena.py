"""One unnamed temporary file for the bytes of many objects.

It costs one descriptor, and the system removes it however the process ends. Knows nothing of the content of the bytes.
"""

from __future__ import annotations

import errno
import os
import tempfile
import weakref

from llmfw.core import StorageError, StorageFullError

BLOCK = 2**18  # bytes
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Arena:
    """A file of blocks. Freed blocks are used again; the file never becomes smaller."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._free: list[int] = []
        self._size = 0  # blocks
        weakref.finalize(self, self._file.close)

    def content(self) -> Content:
        """Return new, empty content."""
        return Content(self, self._free)

    def take(self) -> int:
        """Return an unused block. Any thread may call it, one at a time."""
        if self._free:
            return self._free.pop()
        self._size += 1
        return self._size - 1

    def write(self, data: memoryview, at: int) -> None:
        """Write all of these bytes."""
        try:
            while data:
                written = os.pwrite(self._file.fileno(), data, at)
                data, at = data[written:], at + written
        except OSError as error:
            raise _explained(error) from error

    def read(self, size: int, at: int) -> bytes:
        """Return up to `size` bytes."""
        try:
            return os.pread(self._file.fileno(), size, at)
        except OSError as error:
            raise _explained(error) from error


class Content:
    """Bytes in an arena. Their blocks are freed with the last reference to the object, so a reader can always finish.

    Args:
        arena: the arena of the blocks.
        free: the list that receives the freed blocks.

    Attributes:
        size: in bytes.
    """

    def __init__(self, arena: Arena, free: list[int]) -> None:
        self._arena = arena
        self._blocks: list[int] = []
        self.size = 0
        weakref.finalize(self, _free_all, free, self._blocks)

    def room(self, size: int) -> None:
        """Take the blocks for `size` more bytes."""
        while self.size + size > len(self._blocks) * BLOCK:
            self._blocks.append(self._arena.take())

    def append(self, data: bytes) -> None:
        """Append bytes, for which `room` was called. Any thread may call it, one at a time."""
        rest = memoryview(data)
        while rest:
            part = rest[: BLOCK - self.size % BLOCK]
            self._arena.write(part, self._place(self.size))
            self.size += len(part)
            rest = rest[len(part) :]

    def piece(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end` or the end of the block, at least one. Any thread may call it."""
        end = min(end, start - start % BLOCK + BLOCK)
        return self._arena.read(end - start, self._place(start))

    def _place(self, at: int) -> int:
        return self._blocks[at // BLOCK] * BLOCK + at % BLOCK


def _free_all(free: list[int], blocks: list[int]) -> None:
    free.extend(blocks)


def _explained(error: OSError) -> StorageError:
    kind = StorageFullError if error.errno in NO_ROOM else StorageError
    return kind(f"temporary files in {tempfile.gettempdir()!r} cannot be written or read: {error}")
