"""What the system and SQLite report → errors that say what stands in the way, and what to do."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from pathlib import Path

from llmfw.core import StorageError, StorageFullError

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
PROBE = b"\0" * 2**16


def code_of(error: BaseException) -> int:
    """Return SQLite's primary result code, 0 where there is none."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def explained(error: sqlite3.Error | OSError, path: Path) -> StorageError:
    """Return the error to raise for what happened to a file or folder.

    Args:
        path: what was worked on, where the error does not name it.
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
    return StorageError(f"{str(path)!r} cannot be read or written: {_reason(error)}")


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)


def _is_full(error: sqlite3.Error | OSError, path: Path) -> bool:
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    # SQLite has a code for a full disk, but for the files beside the database, and for quotas, it says "I/O error".
    code = code_of(error)
    return code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and not _has_room(path.parent))


def _has_room(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            return os.write(probe.fileno(), PROBE) == len(PROBE)
    except OSError as error:
        return error.errno not in NO_ROOM
