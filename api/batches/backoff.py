"""Exponential backoff between retries. Logs only the first failure and the recovery."""

from __future__ import annotations

import asyncio
import logging

logger = logging.getLogger(__name__)

FIRST_S, MOST_S = 0.2, 10.0


class Backoff:
    """Exponential backoff between the retries of one job.

    Args:
        name: name of the job, for the log.
        first_s: seconds to wait before the first retry.
    """

    def __init__(self, name: str, first_s: float = FIRST_S) -> None:
        self._name = name
        self._first_s = first_s
        self._tries = 0

    @property
    def tries(self) -> int:
        """Number of consecutive failures."""
        return self._tries

    async def wait(self, error: Exception) -> None:
        """Count a failure, and sleep before the next try."""
        if not self._tries:
            logger.warning("Batch %s waits, and will go on: %s", self._name, error)
        self._tries += 1
        await asyncio.sleep(min(MOST_S, self._first_s * 2 ** min(self._tries - 1, 16)))

    def reset(self) -> None:
        """Reset the count of failures after a success."""
        if self._tries:
            logger.info("Batch %s goes on", self._name)
        self._tries = 0
