"""Runs parts of one request at the same time, within the limits of the request's tenant."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from llmfw.core import RateLimitError, TenantLimitError

T = TypeVar("T")


class Together:
    """Runs parts of one request.

    The parts of a request may take all places of the tenant. A part that is refused for this reason is tried
    again when another part has ended.

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
            part: function that starts the part; called again if the part was refused.

        Raises:
            TenantLimitError: the part was refused while no other part ran, or by a limit per minute.
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
        """Wake the refused parts, which then try again."""
        self._ended.set()
        self._ended = asyncio.Event()
