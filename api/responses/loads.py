"""Limits what stored conversations take while requests continue them.

A request of 200 bytes may continue a conversation of megabytes, which becomes objects of many times that size.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from llmfw.core.base.errors import RequestError

TOO_LARGE = "conversation_too_large"

MAX_BYTES = 2**24
"""Most bytes of stored turns that one request may load."""

SMALL_BYTES = 2**18
"""Turns up to this size leave room for the next request of their tenant as soon as they are loaded."""

MAX_AT_ONCE = 4
"""Requests of all tenants that load turns at once."""


class Load:
    """The stored turns that one request loads.

    Args:
        gate: the lock of its tenant, which this request holds.
        together: place among the requests of all tenants that load, which it holds, too.
    """

    def __init__(self, gate: asyncio.Lock, together: asyncio.Semaphore) -> None:
        self._held: list[asyncio.Lock | asyncio.Semaphore] = [gate, together]
        self._num_bytes = 0

    def count(self, num_bytes: int, param: str) -> None:
        """Count turns before they are decoded.

        Raises:
            RequestError: they are too large, together with those before; names the parameter.
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
        """Mark the stored turns as loaded, so that other tenants' requests may load theirs.

        The tenant's next request may load, too, unless this request loaded more than SMALL_BYTES; it then waits
        for `close`.
        """
        self._release(1 if self._num_bytes > SMALL_BYTES else 0)

    def close(self) -> None:
        """Let all waiting requests load, however much this request loaded."""
        self._release(0)

    def _release(self, num_kept: int) -> None:
        while len(self._held) > num_kept:
            self._held.pop().release()


class Loads:
    """Lets one request of each tenant load turns at a time, and a few of all tenants."""

    def __init__(self) -> None:
        self._gates: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._together = asyncio.Semaphore(MAX_AT_ONCE)

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[Load]:
        """Wait until a request of a tenant may load turns, and work with them in the block."""
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
