"""A folder of files' bytes, each written under a passing name before it gets its own.

Knows nothing of records: who does tells it which names to keep.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

logger = logging.getLogger(__name__)

RESERVE = 2**18  # bytes: more than it takes to commit that a file is gone
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


def has_entries(folder: Path) -> bool:
    """Return whether there is a folder, and something in it."""
    return folder.is_dir() and bool(os.listdir(folder))


class Contents:
    """The folder.

    Args:
        folder: is made, for this user alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reserve = folder.with_suffix(".reserve")
        folder.mkdir(mode=0o700, exist_ok=True)
        self.reserve_room()
        _sync(folder.parent)

    def keep_only(self, names: Collection[str]) -> None:
        """Remove what a process that was killed has left: passing names, and bytes of which nothing is known."""
        left = [
            entry.path for entry in os.scandir(self._folder) if entry.name not in names and entry.is_file()
        ]
        for path in left:
            os.unlink(path)
        if left:
            logger.info("removed %d unfinished files from %s", len(left), self._folder)

    def reserve_room(self) -> None:
        """Keep room that `spend_reserve` gives back, that on a full disk files can still be deleted."""
        with contextlib.suppress(OSError):
            self._reserve.touch(0o600)
            if self._reserve.stat().st_size < RESERVE:
                self._reserve.write_bytes(bytes(RESERVE))

    def spend_reserve(self) -> bool:
        """Return whether there is room now that was reserved."""
        try:
            size = self._reserve.stat().st_size
            self._reserve.unlink()
        except OSError:
            return False
        return size > 0

    def incoming(self) -> Incoming:
        """Return a file to write."""
        return Incoming(self._folder)

    def open(self, name: str) -> BinaryIO:
        """Return a file's bytes; they stay as they are for who has them, also when the name is gone."""
        return open(self._folder / name, "rb", buffering=0)

    def remove(self, name: str) -> None:
        """Remove a file; where that fails it is removed when the folder is used the next time."""
        try:
            os.unlink(self._folder / name)
        except OSError as error:
            logger.warning("%s cannot be removed now: %s", self._folder / name, error)


class Incoming:
    """A file while it comes in. Any one thread at a time may use it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / f".incoming-{secrets.token_hex(8)}"
        self._descriptor = -1
        self._released = False

    def write(self, chunk: bytes) -> None:
        """Append bytes."""
        if self._descriptor < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def finish(self) -> None:
        """Have all bytes on the disk."""
        self.write(b"")
        os.fsync(self._descriptor)
        self._close()

    def publish(self, name: str) -> None:
        """Give the finished file its name. It replaces one of that name."""
        if not PLAIN.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a file")
        path = self._folder / name
        os.rename(self._path, path)
        self._path = path
        _sync(self._folder)

    def release(self) -> None:
        """Leave the file where it is, whatever comes: a record has it now, or may have."""
        self._released = True

    def discard(self) -> None:
        """Remove the file, whatever its name is by now, unless it has been released."""
        self._close()
        if not self._released:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

    def _close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def _sync(folder: Path) -> None:
    """Have a folder's names on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
