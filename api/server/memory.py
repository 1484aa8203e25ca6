"""Returns memory to the system after large requests. Does nothing without glibc.

glibc keeps freed memory. Once a block of 30 MB has been freed, glibc allocates blocks of that size from its
own heap, where a single small block at the end prevents the whole heap from being returned.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys

QUIET_S = 1.0
"""Seconds from the last large body until memory is returned."""

_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1
_LARGE = 2**18


class Memory:
    """Controls when the allocator of this process returns memory to the system."""

    def __init__(self) -> None:
        self._libc = _glibc()
        self._timer: asyncio.TimerHandle | None = None

    def settle(self) -> None:
        """Make glibc allocate large blocks directly from the system, and return them when they are freed."""
        if self._libc is not None:
            self._libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
            self._libc.mallopt(_M_TRIM_THRESHOLD, _LARGE)

    def used(self) -> None:
        """Schedule the return of memory in QUIET_S seconds.

        Call it when a large body has been received, when its turn has come, and when a large reply is encoded;
        each call restarts the time.
        """
        if self._libc is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(QUIET_S, self._trim)

    def _trim(self) -> None:
        self._timer = None
        assert self._libc is not None
        gc.collect()  # a failed request may be part of a reference cycle; takes 10 ms, see `core.imports.garbage`
        self._libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None
