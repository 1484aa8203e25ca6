"""One unnamed temporary file that holds the bytes of many objects.

The file takes one descriptor. The operating system removes the file, even if the process crashes.
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
    """A temporary file divided into blocks. Freed blocks are reused; the file never shrinks."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._free: list[int] = []
        self._size = 0  # blocks
        weakref.finalize(self, self._file.close)

    def content(self) -> Content:
        """Return a new, empty `Content` in this arena."""
        return Content(self, self._free)

    def take(self) -> int:
        """Allocate a block; return its number. May be called from any thread, but not concurrently."""
        if self._free:
            return self._free.pop()
        self._size += 1
        return self._size - 1

    def write(self, data: memoryview, at: int) -> None:
        """Write all of `data` at byte offset `at`."""
        try:
            while data:
                written = os.pwrite(self._file.fileno(), data, at)
                data, at = data[written:], at + written
        except OSError as error:
            raise _explained(error) from error

    def read(self, size: int, at: int) -> bytes:
        """Return up to `size` bytes from byte offset `at`."""
        try:
            return os.pread(self._file.fileno(), size, at)
        except OSError as error:
            raise _explained(error) from error


class Content:
    """The bytes of one object in an arena.

    The blocks are freed when the last reference to the `Content` is gone, so a reader can always finish.

    Args:
        arena: arena of the blocks.
        free: list to which freed blocks are added.

    Attributes:
        size: size in bytes.
    """

    def __init__(self, arena: Arena, free: list[int]) -> None:
        self._arena = arena
        self._blocks: list[int] = []
        self.size = 0
        weakref.finalize(self, _free_all, free, self._blocks)

    def room(self, size: int) -> None:
        """Allocate the blocks for `size` more bytes."""
        while self.size + size > len(self._blocks) * BLOCK:
            self._blocks.append(self._arena.take())

    def append(self, data: bytes) -> None:
        """Append bytes; call `room` first. May be called from any thread, but not concurrently."""
        rest = memoryview(data)
        while rest:
            part = rest[: BLOCK - self.size % BLOCK]
            self._arena.write(part, self._place(self.size))
            self.size += len(part)
            rest = rest[len(part) :]

    def piece(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`, or up to the end of the block that contains `start`.

        May be called from any thread.
        """
        end = min(end, start - start % BLOCK + BLOCK)
        return self._arena.read(end - start, self._place(start))

    def _place(self, at: int) -> int:
        return self._blocks[at // BLOCK] * BLOCK + at % BLOCK


def _free_all(free: list[int], blocks: list[int]) -> None:
    free.extend(blocks)


def _explained(error: OSError) -> StorageError:
    kind = StorageFullError if error.errno in NO_ROOM else StorageError
    return kind(f"temporary files in {tempfile.gettempdir()!r} cannot be written or read: {error}")
