"""Makes the operating system allocate the memory of keys and values before steps use it.

The system allocates memory when it is first written to: it clears a page, and a virtual machine may have to
get the page from its host first. A step waits milliseconds for each new page. So the engine, while idle, has
the system allocate the pages that the pool hands out next, one large page at a time. It stays at most
`pages_ahead` pages beyond the pages ever used, so that a server with little load stays small. Contents do not
change. Needs Linux 5.14; on other systems, or if the system refuses, nothing happens.
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
"""Maximum memory to allocate in advance, for all layers together, in bytes."""

POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of linux/mman.h
SMALL_PAGE = 4096  # bytes; madvise needs an address aligned to it


class KVPrefaulter:
    """Prefaults the memory of the KV storage, in the order in which the pool first hands out pages.

    Args:
        storage: storage of keys and values.
        pool: pool of the storage's pages.
        num_ahead: number of pages to allocate beyond the pages ever used.
    """

    def __init__(self, storage: KVStorage, pool: KVPool, num_ahead: int) -> None:
        self._pool = pool
        tensors = [
            each
            for each in (*storage.keys, *storage.values, *storage.index_keys.values())
            if each.device.type == "cpu"
        ]
        self._tensors = tensors  # keeps the memory alive, because `_pieces` has only addresses
        self._pieces = _pieces(tensors) if sys.platform == "linux" else []
        self._num_done = 0
        self._num_ahead = num_ahead

    @property
    def is_due(self) -> bool:
        """Whether more memory should be allocated now."""
        if self._num_done == len(self._pieces):
            return False
        return self._pieces[self._num_done][0] < self._pool.num_ever_used + self._num_ahead

    def bring(self) -> None:
        """Allocate the next part of the memory, about one large page."""
        _, address, size = self._pieces[self._num_done]
        self._num_done = self._num_done + 1 if _populate(address, size) else len(self._pieces)


def pages_ahead(storage: KVStorage, available: int) -> int:
    """Return how many pages to allocate in advance: the pages of TOKENS_AHEAD tokens, but at most
    BYTES_AHEAD.

    Args:
        available: available memory in bytes, of which at most an eighth is used.
    """
    page_bytes = max(1, sum(storage.num_bytes) // storage.num_pages)  # no bytes: no layer has attention
    return min(TOKENS_AHEAD // storage.page_size, min(BYTES_AHEAD, available // 8) // page_bytes)


def _pieces(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int, int]]:
    """Split tensors [num_pages, …] into parts of about one large page.

    Returns the first KV page, the address and the size in bytes of each part.
    """
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
    """Make the system allocate memory as if it were written to; return whether this succeeded.

    Other threads may use the memory at the same time.
    """
    before = address % SMALL_PAGE
    libc = ctypes.CDLL(None)
    begin, length = ctypes.c_void_p(address - before), ctypes.c_size_t(size + before)
    return bool(libc.madvise(begin, length, POPULATE_WRITE) == 0)
