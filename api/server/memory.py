"""Gives memory back to the system after large requests. Elsewhere than on glibc it does nothing.

glibc keeps freed memory for itself: once a block of 30 MB has been freed, it takes blocks of that size from its own
heap, where a small one that stays behind keeps all of it.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys

QUIET_S = 1.0
"""Memory is given back this long after the last large request."""

_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1
_LARGE = 2**18


class Memory:
    """The allocator of this process."""

    def __init__(self) -> None:
        self._libc = _glibc()
        self._timer: asyncio.TimerHandle | None = None

    def settle(self) -> None:
        """Have large blocks come from the system, and go back there when they are freed, for good."""
        if self._libc is not None:
            self._libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
            self._libc.mallopt(_M_TRIM_THRESHOLD, _LARGE)

    def used(self) -> None:
        """Note that a large request was here: give memory back soon after the last one."""
        if self._libc is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(QUIET_S, self._trim)

    def _trim(self) -> None:
        self._timer = None
        assert self._libc is not None
        self._libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None
