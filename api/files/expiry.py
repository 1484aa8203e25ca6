"""Removes expired files in the background."""

from __future__ import annotations

import asyncio
import logging
import time

from llmfw.core.base.errors import StorageError

from .service import FileService

logger = logging.getLogger(__name__)

EVERY_S = 60.0


class FileExpiry:
    """Removes expired files in the background: at the start, and then at intervals.

    Args:
        every_s: seconds between two searches.
    """

    def __init__(self, files: FileService, every_s: float = EVERY_S) -> None:
        self._files = files
        self._every_s = every_s
        self._removing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the background task that removes expired files."""
        self._removing = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop the background task."""
        if self._removing is not None:
            self._removing.cancel()
            await asyncio.gather(self._removing, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._files.remove_expired(time.time())
            except StorageError as error:
                logger.warning("Expired files cannot be removed now: %s", error)
            except Exception:
                logger.exception("Expired files cannot be removed now")
            await asyncio.sleep(self._every_s)
