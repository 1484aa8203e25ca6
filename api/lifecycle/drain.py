"""Drains a server before it ends: running requests finish, and batches go back to their store.

Does not depend on HTTP, and does not end the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from llmfw.core.base.errors import NotReadyError

logger = logging.getLogger(__name__)

RETRY_S = 5.0
"""Seconds after which a refused client should ask again: a new server may have taken over by then."""

LAST_WORDS_S = 2.0
"""Longest time to store what is left, in seconds, if the drain ends early."""


class Work(Protocol):
    """Work of a server that belongs to no open request, such as batches."""

    async def hand_back(self) -> None:
        """Stop the work that another server can continue, and store its progress."""

    async def finished(self) -> None:
        """Wait until no other work runs."""

    async def end(self) -> None:
        """End the remaining work, and store the reason."""


class Drain:
    """Counts the open requests. Once the drain has begun, waits until they have ended.

    Args:
        timeout_s: longest time to wait, in seconds.

    Attributes:
        timeout_s: longest time to wait, in seconds: the argument, or the time that `begin` received.
    """

    def __init__(self, timeout_s: float = 0.0) -> None:
        self.timeout_s = timeout_s
        self._work: list[Work] = []
        self._begun = asyncio.Event()
        self._hurried = asyncio.Event()
        self._open = _OpenRequests()

    @property
    def num_open(self) -> int:
        """Number of requests that run."""
        return self._open.count

    @property
    def refusal(self) -> NotReadyError | None:
        """Error for new requests; None before the drain."""
        if not self._begun.is_set():
            return None
        return NotReadyError(
            "the server is about to end and takes no new requests; send this one to another server, or again later",
            code="draining",
            retry_after_s=RETRY_S,
        )

    def request(self) -> AbstractContextManager[None]:
        """Count a request as open in the `with` block."""
        return self._open

    def add(self, work: Work) -> None:
        """Include further work in the drain."""
        self._work.append(work)

    def begin(self, timeout_s: float | None = None) -> bool:
        """Refuse new requests from now on. Return True if this call began the drain.

        Args:
            timeout_s: longest time to wait, in seconds, in place of the drain's own; ignored once the drain has begun.
        """
        is_first = not self._begun.is_set()
        if is_first and timeout_s is not None:
            self.timeout_s = timeout_s
        self._begun.set()
        return is_first

    def hurry(self) -> None:
        """Stop waiting for running requests and other work."""
        self._hurried.set()

    async def begun(self) -> None:
        """Wait until the drain has begun."""
        await self._begun.wait()

    async def run(self) -> bool:
        """Wait until everything has ended. Return False if something still runs after `timeout_s`, or after `hurry`.

        When this returns, work that belongs to no open request has ended, too.
        """
        is_done = await self._wait()
        if not is_done:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await _all(work.end() for work in self._work)
        return is_done

    async def _wait(self) -> bool:
        ending = asyncio.create_task(self._end())
        hurried = asyncio.create_task(self._hurried.wait())
        try:
            await asyncio.wait({ending, hurried}, timeout=self.timeout_s, return_when=asyncio.FIRST_COMPLETED)
            return ending.done()
        finally:
            ending.cancel()
            hurried.cancel()
            await asyncio.gather(ending, hurried, return_exceptions=True)

    async def _end(self) -> None:
        await _all(work.hand_back() for work in self._work)
        await self._open.idle.wait()
        await _all(work.finished() for work in self._work)


class _OpenRequests(AbstractContextManager[None]):
    """Counts how many blocks it is open in.

    Attributes:
        count: number of blocks.
        idle: set while there are none.
    """

    def __init__(self) -> None:
        self.count = 0
        self.idle = asyncio.Event()
        self.idle.set()

    def __enter__(self) -> None:
        if not self.count:
            self.idle.clear()
        self.count += 1

    def __exit__(self, *error: object) -> None:
        self.count -= 1
        if not self.count:
            self.idle.set()


async def _all(steps: Iterable[Awaitable[None]]) -> None:
    """Wait for all steps. Log steps that fail: a plugin's store must not cut running requests short."""
    for result in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(result, Exception):
            logger.error("a step of the drain failed", exc_info=result)
