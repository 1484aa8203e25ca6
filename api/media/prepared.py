"""Limits the memory for images as the model reads them: tensors, which a request holds until it ends.

They are far larger than the pixels: 24 MB for a picture of a megapixel, in models such as Qwen2.5-VL. The API process and the
engine each hold them. So a request waits until earlier ones have ended, before its own images are prepared.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import msgspec

from llmfw.core.base.errors import OverloadedError
from llmfw.core.base.media import MediaSpan

MAX_BYTES = 2**31
"""Bytes of prepared images, of all requests that have not ended, at which no further request's images are prepared."""
MAX_PREPARING = 4
"""Requests whose images are prepared at a time. Their sizes are not known yet, so they may exceed the limit."""
MAX_WAITING = 512


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    tenant: str
    is_patient: bool
    turn: asyncio.Future[None]


class PreparedImages:
    """Counts the bytes of prepared images. All methods must be called in one event loop.

    One tenant gets at most half of the memory, and deferrable requests together a quarter.

    Args:
        most: limit in bytes.
    """

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._held: Counter[str] = Counter()
        self._num_patient_bytes = 0
        self._num_preparing = 0
        self._waiting: list[_Waiting] = []

    @property
    def used(self) -> int:
        """Bytes that are held now."""
        return self._held.total()

    @asynccontextmanager
    async def turn(self, tenant: str, *, is_patient: bool) -> AsyncIterator[None]:
        """Wait until images of a tenant may be prepared, and prepare them within the block.

        Args:
            is_patient: whether the request is deferrable.

        Raises:
            OverloadedError: too many requests wait.
        """
        if len(self._waiting) >= MAX_WAITING and not is_patient:
            raise OverloadedError(f"{len(self._waiting)} requests with images wait already; try again later")
        waiting = _Waiting(tenant, is_patient, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._advance()
        try:
            await waiting.turn
            yield
        finally:
            if waiting.turn.done() and not waiting.turn.cancelled():
                self._num_preparing -= 1
            else:
                self._waiting.remove(waiting)
            self._advance()

    def count(self, tenant: str, spans: Iterable[MediaSpan], *, is_patient: bool) -> None:
        """Count the bytes of images for as long as anything refers to their spans."""
        loop = asyncio.get_running_loop()
        for span in spans:
            size = sum(len(array.data) for array in span.tensors.values())
            self._add(tenant, size, is_patient)
            end = weakref.finalize(span, _soon, loop, self._add, tenant, -size, is_patient)
            end.atexit = False

    def _add(self, tenant: str, size: int, is_patient: bool) -> None:
        self._held[tenant] += size
        self._num_patient_bytes += size * is_patient
        self._held += Counter()  # drops entries that are zero
        if size < 0:
            self._advance()

    def _advance(self) -> None:
        """Give turns to waiting requests: live ones first, then of the tenants that hold the least."""
        while self._num_preparing < MAX_PREPARING and self.used < self._most:
            may = [each for each in self._waiting if self._has_room(each)]
            if not may:
                return
            chosen = min(may, key=lambda each: (each.is_patient, self._held[each.tenant]))
            self._waiting.remove(chosen)
            self._num_preparing += 1
            chosen.turn.set_result(None)

    def _has_room(self, waiting: _Waiting) -> bool:
        if waiting.is_patient and self._num_patient_bytes >= self._most // 4:
            return False
        return self._held[waiting.tenant] < self._most // 2 and not waiting.turn.done()


def _soon(loop: asyncio.AbstractEventLoop, add: object, *args: object) -> None:
    """Call a function in the event loop: spans may be freed in another thread."""
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(add, *args)  # type: ignore[arg-type]
