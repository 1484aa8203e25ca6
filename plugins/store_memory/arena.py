"""One unnamed temporary file for the bytes of many: it costs one descriptor, and is gone however the process ends.

Knows nothing of what the bytes are.
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
    """A file in blocks. A block that was given back is used again; the file never becomes smaller."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._free: list[int] = []
        self._size = 0  # blocks
        weakref.finalize(self, self._file.close)

    def content(self) -> Content:
        """Return new content, with nothing in it."""
        return Content(self, self._free)

    def take(self) -> int:
        """Return a block that is no one's. Any one thread at a time may call it."""
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
        """Return so many bytes, or a part of them."""
        try:
            return os.pread(self._file.fileno(), size, at)
        except OSError as error:
            raise _explained(error) from error


class Content:
    """Bytes in an arena. Their blocks are free again once no one holds the object: who reads goes on to the end.

    Args:
        free: where its blocks go.

    Attributes:
        size: in bytes.
    """

    def __init__(self, arena: Arena, free: list[int]) -> None:
        self._arena = arena
        self._blocks: list[int] = []
        self.size = 0
        weakref.finalize(self, _free_all, free, self._blocks)

    def room(self, size: int) -> None:
        """Take the blocks for so many more bytes."""
        while self.size + size > len(self._blocks) * BLOCK:
            self._blocks.append(self._arena.take())

    def append(self, data: bytes) -> None:
        """Write bytes, for which there is room, after the others. May be called in any one thread."""
        rest = memoryview(data)
        while rest:
            part = rest[: BLOCK - self.size % BLOCK]
            self._arena.write(part, self._place(self.size))
            self.size += len(part)
            rest = rest[len(part) :]

    def piece(self, start: int, end: int) -> bytes:
        """Return the bytes from start up to end or a bit before it, at least one. May be called in any thread."""
        end = min(end, start - start % BLOCK + BLOCK)
        return self._arena.read(end - start, self._place(start))

    def _place(self, at: int) -> int:
        return self._blocks[at // BLOCK] * BLOCK + at % BLOCK


def _free_all(free: list[int], blocks: list[int]) -> None:
    free.extend(blocks)


def _explained(error: OSError) -> StorageError:
    kind = StorageFullError if error.errno in NO_ROOM else StorageError
    return kind(f"temporary files in {tempfile.gettempdir()!r} cannot be written or read: {error}")
