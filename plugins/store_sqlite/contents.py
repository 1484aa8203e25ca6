"""A folder of files' bytes, each written under a passing name before it gets its own.

A passing name holds the token of the name that follows, so that either leads to the bytes. A name is never used twice.
Knows nothing of records.
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

import msgspec

logger = logging.getLogger(__name__)

RESERVE = 2**18  # bytes: more than it takes to commit that a file is gone
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
INCOMING = ".incoming-"


def has_entries(folder: Path) -> bool:
    """Return whether there is a folder, and something in it."""
    return folder.is_dir() and bool(os.listdir(folder))


class Stock(msgspec.Struct, frozen=True):
    """What a folder holds, compared with the names that its records have.

    Attributes:
        unknown: names of files that no record has and that were not to be removed.
        missing: names that a record has and the folder lacks.
    """

    unknown: Collection[str]
    missing: Collection[str]


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

    def settle(self, known: Collection[str], removed: Collection[str]) -> Stock:
        """Finish what a killed process has left: give names that were committed, remove unfinished uploads.

        Args:
            known: names that records have.
            removed: names whose records were removed. Nothing but these and unfinished uploads is removed.
        """
        there = {entry.name for entry in os.scandir(self._folder) if entry.is_file()}
        passing = {_passing(name): name for name in known if name not in there}
        unfinished = {name for name in there if name.startswith(INCOMING) and name not in passing}
        for name in passing.keys() & there:
            os.rename(self._folder / name, self._folder / passing[name])
        gone = unfinished | (there & set(removed))
        for name in gone:
            os.unlink(self._folder / name)
        _sync(self._folder)
        if gone:
            logger.info("removed %d unfinished or deleted files from %s", len(gone), self._folder)
        missing = {name for passing_name, name in passing.items() if passing_name not in there}
        return Stock(there - gone - set(known) - passing.keys(), missing)

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
        try:
            return open(self._folder / name, "rb", buffering=0)
        except FileNotFoundError:
            with contextlib.suppress(FileNotFoundError):
                return open(self._folder / _passing(name), "rb", buffering=0)
            raise

    def remove(self, name: str) -> bool:
        """Remove a file; return whether it is gone."""
        try:
            for each in (name, _passing(name)):
                (self._folder / each).unlink(missing_ok=True)
        except OSError as error:
            logger.warning(
                "%s is removed at the next start, now it cannot be: %s", self._folder / name, error
            )
            return False
        return True

    def sync(self) -> None:
        """Have the folder's names on the disk."""
        _sync(self._folder)


class Incoming:
    """A file while it comes in. Any one thread at a time may use it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._token = secrets.token_hex(8)
        self._path = folder / f"{INCOMING}{self._token}"
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
        """Have all bytes, and the passing name, on the disk."""
        self.write(b"")
        os.fsync(self._descriptor)
        self._close()
        _sync(self._folder)

    def name(self, file_id: str) -> str:
        """Return the name that the file will have.

        Raises:
            ValueError: the id cannot be in the name of a file.
        """
        if not PLAIN.fullmatch(file_id):
            raise ValueError(f"{file_id!r} cannot be the name of a file")
        return f"{file_id}.{self._token}"

    def publish(self, name: str) -> None:
        """Give the file its name, which a record has by now. If that fails, the next start does it."""
        self.release()
        try:
            os.rename(self._path, self._folder / name)
        except OSError as error:
            logger.warning("%s keeps its passing name until the next start: %s", self._path, error)

    def release(self) -> None:
        """Leave the file where it is, whatever comes: a record has it now, or may have."""
        self._released = True

    def discard(self) -> None:
        """Remove the file, unless it has been released."""
        self._close()
        if not self._released:
            self._path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def _passing(name: str) -> str:
    """Return the passing name of the bytes that have a name, or will have it."""
    return INCOMING + name.rpartition(".")[2]


def _sync(folder: Path) -> None:
    """Have a folder's names on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
