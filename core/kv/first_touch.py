"""Has the system bring the memory of keys and values before it is used.

Memory that was asked for is there once it is first written to: the system then clears a page, and a virtual machine
may have to get it from its host first. A step that comes to new pages waits milliseconds for each. So while nobody
waits, those that the pool hands out next are brought, a large page at a time; never more than `AHEAD` bytes beyond what
was ever used, as a server of which little is asked is to stay small. Contents do not change. Linux has this from 5.14
on; elsewhere, or where the system refuses, nothing happens.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence

import torch

from ..cache.kv_pool import KVPool
from .storage import LARGE_PAGE, KVStorage

AHEAD = 512 << 20
"""Bytes of all layers together."""

POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of linux/mman.h
SMALL_PAGE = 4096  # bytes; madvise begins at a border of one


class FirstTouch:
    """Goes through the storage once, in the order in which the pool hands out pages for the first time.

    Args:
        storage: of keys and values.
        pool: of its pages.
        room: bytes that may be taken beyond those of pages that were used; never more than `AHEAD` are.
    """

    def __init__(self, storage: KVStorage, pool: KVPool, room: int = AHEAD) -> None:
        self._pool = pool
        tensors = [each for each in (*storage.keys, *storage.values) if each.device.type == "cpu"]
        self._pieces = _pieces(tensors) if sys.platform == "linux" else []
        self._num_done = 0
        page_bytes = sum(storage.num_bytes) // storage.num_pages
        self._pages_ahead = min(AHEAD, room) // page_bytes

    @property
    def is_due(self) -> bool:
        """Whether there is something to bring now."""
        if self._num_done == len(self._pieces):
            return False
        return self._pieces[self._num_done][0] < self._pool.num_ever_used + self._pages_ahead

    def bring(self) -> None:
        """Bring the next piece."""
        _, address, size = self._pieces[self._num_done]
        self._num_done = self._num_done + 1 if _populate(address, size) else len(self._pieces)


def _pieces(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int, int]]:
    """Cut tensors [num_pages, …] into pieces of about a large page: for each its first page, address and bytes."""
    if not tensors:
        return []
    sizes = [tensor.nbytes // len(tensor) for tensor in tensors]
    step = max(1, LARGE_PAGE // max(sizes))
    return [
        (first, tensor.data_ptr() + first * size, min(step, len(tensor) - first) * size)
        for first in range(0, len(tensors[0]), step)
        for tensor, size in zip(tensors, sizes, strict=True)
    ]


def _populate(address: int, size: int) -> bool:
    """Have pages brought as if they were written to; return whether the system did. Other threads may use them."""
    before = address % SMALL_PAGE
    libc = ctypes.CDLL(None)
    begin, length = ctypes.c_void_p(address - before), ctypes.c_size_t(size + before)
    return bool(libc.madvise(begin, length, POPULATE_WRITE) == 0)
