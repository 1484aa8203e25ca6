"""A folder with the bytes of uploaded files.

Each file is written under a temporary name, and then gets its final name. A temporary name contains the
random token of the final name, so either name leads to the bytes. Names are never reused. Does not depend on
the records of files.
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

RESERVE = 2**18  # bytes; more than enough to commit the deletion of a file
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
INCOMING = ".incoming-"


def has_entries(folder: Path) -> bool:
    """Return whether the folder exists and is not empty."""
    return folder.is_dir() and bool(os.listdir(folder))


class Stock(msgspec.Struct, frozen=True):
    """The differences between a folder's files and the names in the database's records.

    Attributes:
        unknown: files in the folder that no record names and that are not due for removal.
        missing: names in records for which the folder has no file.
    """

    unknown: Collection[str]
    missing: Collection[str]


class Contents:
    """The folder that holds the bytes of files.

    Args:
        folder: path of the folder; created if missing, accessible only to this user.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reserve = folder.with_suffix(".reserve")
        folder.mkdir(mode=0o700, exist_ok=True)
        self.reserve_room()
        _sync(folder.parent)

    def settle(self, known: Collection[str], removed: Collection[str]) -> Stock:
        """Finish a killed process's work: give committed files their final names, remove unfinished uploads.

        Args:
            known: names in the records.
            removed: names whose records were removed. Only files with these names, and unfinished uploads,
                are removed.
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
        """Reserve space that `spend_reserve` can free, so that files can be deleted even on a full disk."""
        with contextlib.suppress(OSError):
            self._reserve.touch(0o600)
            if self._reserve.stat().st_size < RESERVE:
                self._reserve.write_bytes(bytes(RESERVE))

    def spend_reserve(self) -> bool:
        """Free the reserved disk space; return whether any was freed."""
        try:
            size = self._reserve.stat().st_size
            self._reserve.unlink()
        except OSError:
            return False
        return size > 0

    def incoming(self) -> Incoming:
        """Return a new file to write an upload to."""
        return Incoming(self._folder)

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading. The open file stays readable even if its name is removed."""
        try:
            return open(self._folder / name, "rb", buffering=0)
        except FileNotFoundError:
            with contextlib.suppress(FileNotFoundError):
                return open(self._folder / _passing(name), "rb", buffering=0)
            raise

    def remove(self, name: str) -> bool:
        """Remove a file; return whether this succeeded."""
        try:
            for each in (name, _passing(name)):
                (self._folder / each).unlink(missing_ok=True)
        except OSError as error:
            logger.warning(
                "%s cannot be removed now, and is removed at the next start: %s", self._folder / name, error
            )
            return False
        return True

    def sync(self) -> None:
        """Sync the folder's entries to disk."""
        _sync(self._folder)


class Incoming:
    """A file that is being uploaded.

    Call `write` for each chunk, then `finish`. Commit a record with `name`, then call `publish`. Call
    `discard` if any of this fails. May be used from any thread, but not concurrently.
    """

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
        """Sync all bytes, and the temporary name, to disk."""
        self.write(b"")
        os.fsync(self._descriptor)
        self._close()
        _sync(self._folder)

    def name(self, file_id: str) -> str:
        """Return the file's final name.

        Raises:
            ValueError: the id cannot be in the name of a file.
        """
        if not PLAIN.fullmatch(file_id):
            raise ValueError(f"{file_id!r} cannot be the name of a file")
        return f"{file_id}.{self._token}"

    def publish(self, name: str) -> None:
        """Rename the file to its final name, once the record is committed.

        If the renaming fails, the next start of the server renames the file.
        """
        self.release()
        try:
            os.rename(self._path, self._folder / name)
        except OSError as error:
            logger.warning("%s keeps its temporary name until the next start: %s", self._path, error)

    def release(self) -> None:
        """Make `discard` keep the file.

        Call this once a record of the file is committed, or may be committed.
        """
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
    """Return the temporary name that belongs to a final name."""
    return INCOMING + name.rpartition(".")[2]


def _sync(folder: Path) -> None:
    """Sync a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
