"""Has the system bring the memory of keys and values before it is used.

Memory that was asked for is there once it is first written to: the system then clears a page, and a virtual machine
may have to get it from its host first. A step that comes to new pages waits milliseconds for each. So while nobody
waits, those that the pool hands out next are brought, a large page at a time; not many beyond what was ever used
(`pages_ahead`), as a server of which little is asked is to stay small. Contents do not change. Linux has this from 5.14
on; elsewhere, or where the system refuses, nothing happens.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence

import torch

from llmfw.core.interfaces.kv_storage import LARGE_PAGE, KVStorage
from llmfw.core.schedule.cache.kv_pool import KVPool

TOKENS_AHEAD = 16_384
BYTES_AHEAD = 512 << 20
"""Of all layers together."""

POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of linux/mman.h
SMALL_PAGE = 4096  # bytes; madvise begins at a border of one


class FirstTouch:
    """Goes through the storage once, in the order in which the pool hands out pages for the first time.

    Args:
        storage: of keys and values.
        pool: of its pages.
        num_ahead: pages to bring beyond those that were ever used.
    """

    def __init__(self, storage: KVStorage, pool: KVPool, num_ahead: int) -> None:
        self._pool = pool
        tensors = [each for each in (*storage.keys, *storage.values) if each.device.type == "cpu"]
        self._tensors = tensors  # that pieces are places in: they stay as long as these are known
        self._pieces = _pieces(tensors) if sys.platform == "linux" else []
        self._num_done = 0
        self._num_ahead = num_ahead

    @property
    def is_due(self) -> bool:
        """Whether there is something to bring now."""
        if self._num_done == len(self._pieces):
            return False
        return self._pieces[self._num_done][0] < self._pool.num_ever_used + self._num_ahead

    def bring(self) -> None:
        """Bring the next piece."""
        _, address, size = self._pieces[self._num_done]
        self._num_done = self._num_done + 1 if _populate(address, size) else len(self._pieces)


def pages_ahead(storage: KVStorage, available: int) -> int:
    """Return how many pages are worth having before they are used: of the tokens of some requests, within bounds.

    Args:
        available: bytes that could be allocated; an eighth of them is taken at most.
    """
    page_bytes = sum(storage.num_bytes) // storage.num_pages
    return min(TOKENS_AHEAD // storage.page_size, min(BYTES_AHEAD, available // 8) // page_bytes)


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
