"""Runs the parts of one request at once, as far as the limits of its tenant allow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from llmfw.core import RateLimitError, TenantLimitError

T = TypeVar("T")


class Together:
    """Runs parts of one request.

    A part that is refused because the others of this request take all places of the tenant runs after them.

    Args:
        most: maximum number of parts at once.
    """

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)
        self._num_running = 0
        self._ended = asyncio.Event()

    async def run(self, part: Callable[[], Awaitable[T]]) -> T:
        """Run a part.

        Args:
            part: starts it; called again if it was refused.

        Raises:
            TenantLimitError: it was refused while no other part ran, or by a limit per minute.
        """
        async with self._places:
            while True:
                ended = self._ended  # set when a part ends from now on
                self._num_running += 1
                try:
                    found = await part()
                except TenantLimitError as error:
                    self._num_running -= 1
                    if isinstance(error, RateLimitError) or not self._num_running:
                        self._note_end()
                        raise
                except BaseException:
                    self._num_running -= 1
                    self._note_end()
                    raise
                else:
                    self._num_running -= 1
                    self._note_end()
                    return found
                await ended.wait()

    def _note_end(self) -> None:
        """Wake the parts that wait for a place."""
        self._ended.set()
        self._ended = asyncio.Event()
