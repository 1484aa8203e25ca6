"""The scratch memory of FlashInfer's fa2 kernels, and its size.

If a step has few sequences, a kernel splits their keys into chunks (split-KV). It stores the result of each
chunk, in float32, until it merges them. FlashInfer recommends 128 MiB for these results. That is too little
for 64 query heads, and for a CUDA graph of 512 sequences with 32 query heads. So this module computes the
size by the rule of FlashInfer's planner (scheduler.cuh, 0.6.12).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .kind import Kind

RECOMMENDED_BYTES = 128 << 20
MARGIN_BYTES = 1 << 20  # for aligning the start of each buffer
LARGEST_TILE = 128


class Scratch:
    """Scratch memory that all kernels of one backend share, because they run one after the other.

    Args:
        device: device of the kernels.
        num_bytes: initial size.
    """

    def __init__(self, device: torch.device, num_bytes: int) -> None:
        self._device = device
        self._buffer = self._allocate(num_bytes)

    def at_least(self, num_bytes: int) -> torch.Tensor:
        """Return the memory, a uint8 tensor of at least `num_bytes`. Newly allocated memory is zeroed.

        If the memory is too small, allocates a buffer at least twice as large. Captured graphs refer to the
        old buffers and keep them alive; together, the old buffers are not larger than the new one.
        """
        if num_bytes > self._buffer.nbytes:
            self._buffer = self._allocate(enlarged(self._buffer.nbytes, num_bytes))
        return self._buffer

    def _allocate(self, num_bytes: int) -> torch.Tensor:
        return torch.zeros(num_bytes, dtype=torch.uint8, device=self._device)


def enlarged(num_bytes: int, wanted: int) -> int:
    """Return the size of a new buffer that holds `wanted` bytes and replaces one of `num_bytes` bytes."""
    return max(wanted, 2 * num_bytes)


def bytes_of_buffers(first: int, wanted: Iterable[int]) -> int:
    """Return the total size of all buffers after a series of requests, in bytes.

    The first buffer has `first` bytes; each number in `wanted` is the size of one request.
    """
    total = last = first
    for num_bytes in wanted:
        if num_bytes > last:
            last = enlarged(last, num_bytes)
            total += last
    return total


def bytes_for_steps(kind: Kind, num_processors: int) -> int:
    """Return the most scratch bytes that a step outside CUDA graphs needs.

    Args:
        kind: kind of the layers.
        num_processors: number of multiprocessors of the device.
    """
    return max(RECOMMENDED_BYTES, _bytes(kind, _most_chunks(kind, num_processors), LARGEST_TILE))


def bytes_for_graph(kind: Kind, num_processors: int, num_sequences: int) -> int:
    """Return the scratch bytes that a CUDA graph of decode steps needs: room for every tile, split or not."""
    tile = _tile_of_single_tokens(kind)
    tiles = -(-num_sequences * kind.num_shared // tile) + num_sequences - 1
    return _bytes(kind, max(tiles, _most_chunks(kind, num_processors)), tile)


def _bytes(kind: Kind, chunks: int, tile: int) -> int:
    """Return the size in bytes of the chunks' results: `head_dim` + 1 float32 numbers per head and row."""
    return kind.num_heads * chunks * tile * (kind.head_dim + 1) * 4 + MARGIN_BYTES


def _most_chunks(kind: Kind, num_processors: int) -> int:
    """Return the largest number of chunks that keys are split into: two thread blocks per multiprocessor."""
    return 2 * num_processors // kind.num_kv_heads


def _tile_of_single_tokens(kind: Kind) -> int:
    """Return the number of rows in a decode tile. A token has a row for each query head of a KV head."""
    if kind.num_shared <= 16:
        return 16
    return 64 if kind.num_shared <= 64 or kind.head_dim >= 256 else LARGEST_TILE
