"""Limits uploads so that some disk space stays free for databases, batch results and the log."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator

from llmfw.core.base.errors import StorageError, StorageFullError

LOOK_BYTES = 16 * 2**20
"""Number of bytes of a file that arrive between two checks of the disk."""
MAX_SHARE = 20
"""Caps the reserve at a twentieth (1/20) of the disk."""


class DiskSpace:
    """Checks the free space of the disk that uploaded files are written to.

    Args:
        folder: a folder on that disk; None: the folder for temporary files.
        reserve_mb: MiB that must stay free, but at most 1/MAX_SHARE of the disk.
    """

    def __init__(self, folder: str | None, reserve_mb: int) -> None:
        self._folder = folder or tempfile.gettempdir()
        self._reserve = reserve_mb * 2**20

    def check(self) -> None:
        """Raise StorageFullError if less than the reserve is free, StorageError if the disk is unreadable."""
        try:
            disk = shutil.disk_usage(self._folder)
        except OSError as error:
            raise StorageError(f"{self._folder!r} cannot be read: {error.strerror or error}") from error
        reserve = min(self._reserve, disk.total // MAX_SHARE)
        if disk.free < reserve:
            raise StorageFullError(
                f"the server's disk has {disk.free >> 20} MiB left, and {reserve >> 20} MiB are kept free; delete files "
                "that you do not need, or ask the operator for more room (--min-free-disk-mb)"
            )

    async def guarded(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield a file's bytes as they arrive. Calls `check` at the start, and again every LOOK_BYTES."""
        unchecked = LOOK_BYTES
        async for chunk in chunks:
            unchecked += len(chunk)
            if unchecked >= LOOK_BYTES:
                self.check()
                unchecked = 0
            yield chunk
