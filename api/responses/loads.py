"""Limits the memory for stored conversations that requests load to continue them.

A request of 200 bytes may continue a conversation of megabytes, and the decoded objects take many times that
size.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from llmfw.core.base.errors import RequestError

TOO_LARGE = "conversation_too_large"

MAX_BYTES = 2**24
"""Maximum size in bytes of the stored turns that one request may load."""

SMALL_BYTES = 2**18
"""If a request loads at most this many bytes, its tenant's next request may load right after it.

After a larger load, the tenant's next request waits until the first has its prompt.
"""

MAX_AT_ONCE = 4
"""Maximum number of requests that load turns at once, of all tenants together."""


class Load:
    """One request's permission to load stored turns.

    Args:
        gate: lock of the request's tenant, already acquired.
        together: semaphore that limits the loading requests of all tenants, already acquired.
    """

    def __init__(self, gate: asyncio.Lock, together: asyncio.Semaphore) -> None:
        self._held: list[asyncio.Lock | asyncio.Semaphore] = [gate, together]
        self._num_bytes = 0

    def count(self, num_bytes: int, param: str) -> None:
        """Add the size of stored turns to the request's total. Call this before the turns are decoded.

        Args:
            num_bytes: size of the turns.
            param: request field that refers to the turns, for errors.

        Raises:
            RequestError: the total is larger than MAX_BYTES.
        """
        self._num_bytes += num_bytes
        if self._num_bytes > MAX_BYTES:
            raise RequestError(
                f"the stored turns that {param} leads to have {self._num_bytes} bytes; one request may load "
                f"{MAX_BYTES}: send the newest turns as input instead",
                param=param,
                code=TOO_LARGE,
            )

    def loaded(self) -> None:
        """Release the semaphore, because all stored turns are loaded.

        If the request loaded at most SMALL_BYTES, also releases the tenant's lock. Otherwise `close` releases
        it.
        """
        self._release(1 if self._num_bytes > SMALL_BYTES else 0)

    def close(self) -> None:
        """Release the tenant's lock and the semaphore, if they are still held."""
        self._release(0)

    def _release(self, num_kept: int) -> None:
        while len(self._held) > num_kept:
            self._held.pop().release()


class Loads:
    """Limits how many requests load stored turns at once: one of each tenant, and MAX_AT_ONCE in total."""

    def __init__(self) -> None:
        self._gates: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._together = asyncio.Semaphore(MAX_AT_ONCE)

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[Load]:
        """Wait until a tenant's request may load stored turns. Hold the permission while the block runs."""
        gate = self._gates.setdefault(tenant, asyncio.Lock())
        await gate.acquire()
        try:
            await self._together.acquire()
        except BaseException:
            gate.release()
            raise
        load = Load(gate, self._together)
        try:
            yield load
        finally:
            load.close()
