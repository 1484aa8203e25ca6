"""Translates OSError and SQLite's errors to llmfw's errors, which say what happened and what to do."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from pathlib import Path

from llmfw.core import ConfigError, StorageDamagedError, StorageError, StorageFullError

from .soundness import how_to_replace

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
UNWRITABLE = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})
DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
PROBE = b"\0" * 2**16


def code_of(error: BaseException) -> int:
    """Return the primary SQLite result code of an error; 0 if it has none."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def explained(error: sqlite3.Error | OSError, path: Path) -> StorageError:
    """Return the error to raise if a file or folder cannot be read or written.

    Args:
        path: the file or folder, for errors that do not name a path.
    """
    if isinstance(error, OSError) and isinstance(error.filename, str):
        path = Path(error.filename)
    if _is_full(error, path):
        return StorageFullError(f"there is no room left for {str(path)!r}: {_reason(error)}")
    if code_of(error) == sqlite3.SQLITE_BUSY:
        return StorageError(
            f"{str(path)!r} is locked by another process, perhaps a sqlite3 shell within a transaction: "
            "end that transaction, or the process, and try again"
        )
    if code_of(error) in DAMAGED:
        return StorageDamagedError(f"{str(path)!r} is damaged ({_reason(error)}): {how_to_replace(path)}")
    return StorageError(f"{str(path)!r} cannot be read or written: {_reason(error)}")


def refusal(error: sqlite3.Error | OSError, path: Path) -> ConfigError:
    """Return the error that stops the server's start if a file or folder cannot be opened.

    Args:
        path: the file or folder.
    """
    if code_of(error) in DAMAGED:
        return ConfigError(f"{str(path)!r} is damaged ({_reason(error)}): {how_to_replace(path)}")
    what_to_do = ""
    if _is_full(error, path):
        what_to_do = ": there is no room left on its disk; make room, then start again"
    elif isinstance(error, FileExistsError | NotADirectoryError):
        what_to_do = ": a file is where the folder is to be; name another folder"
    elif getattr(error, "errno", None) in FORBIDDEN or code_of(error) in UNWRITABLE:
        what_to_do = ": let the server's user write to the folder and the files in it, or name another folder"
    elif code_of(error) == sqlite3.SQLITE_BUSY:
        what_to_do = ": end the process that holds it, perhaps a sqlite3 shell, then start again"
    return ConfigError(f"{str(path)!r} cannot be used as storage: {error}{what_to_do}")


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)


def _is_full(error: sqlite3.Error | OSError, path: Path) -> bool:
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    # SQLite has a code for a full disk, but reports "I/O error" for exceeded quotas, and for its WAL and shm
    # files.
    code = code_of(error)
    return code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and not _has_room(path.parent))


def _has_room(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            return os.write(probe.fileno(), PROBE) == len(PROBE)
    except OSError as error:
        return error.errno not in NO_ROOM
