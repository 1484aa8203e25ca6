"""The scratch memory of FlashInfer's fa2 kernels, and its size.

If a step has few sequences, a kernel cuts their keys into chunks. It keeps the result of each chunk, in float32, until
it merges them. FlashInfer recommends 128 MiB for these results. That is not enough for 64 query heads, nor for a CUDA
graph of 512 sequences with 32, so this module computes the size by the rule of FlashInfer's planner (scheduler.cuh,
0.6.12).
"""

from __future__ import annotations

import torch

from .kind import Kind

RECOMMENDED_BYTES = 128 << 20
MARGIN_BYTES = 1 << 20  # rounding of each part's start
LARGEST_TILE = 128


class Scratch:
    """Memory that all kernels of one backend share, because they run one after the other.

    Args:
        device: the device of the kernels.
        num_bytes: the first size.
    """

    def __init__(self, device: torch.device, num_bytes: int) -> None:
        self._device = device
        self._buffer = self._allocate(num_bytes)

    def at_least(self, num_bytes: int) -> torch.Tensor:
        """Return the memory as uint8, at least `num_bytes` of it. New memory is all zeros.

        Memory that is too small is replaced by at least twice the size. Captured graphs hold the address of the smaller
        memory and keep it alive. All kept buffers together are not larger than the last one.
        """
        if num_bytes > self._buffer.nbytes:
            self._buffer = self._allocate(max(num_bytes, 2 * self._buffer.nbytes))
        return self._buffer

    def _allocate(self, num_bytes: int) -> torch.Tensor:
        return torch.zeros(num_bytes, dtype=torch.uint8, device=self._device)


def bytes_for_steps(kind: Kind, num_processors: int) -> int:
    """Return the bytes that a step outside of CUDA graphs needs at most.

    Args:
        kind: the kind of the layers.
        num_processors: multiprocessors of the device.
    """
    return max(RECOMMENDED_BYTES, _bytes(kind, _most_chunks(kind, num_processors), LARGEST_TILE))


def bytes_for_graph(kind: Kind, num_processors: int, num_sequences: int) -> int:
    """Return the bytes that a CUDA graph of single tokens needs: room for each tile of each sequence, cut or not."""
    tile = _tile_of_single_tokens(kind)
    tiles = -(-num_sequences * kind.num_shared // tile) + num_sequences - 1
    return _bytes(kind, max(tiles, _most_chunks(kind, num_processors)), tile)


def _bytes(kind: Kind, chunks: int, tile: int) -> int:
    """Return the bytes of a row of float32 values, and a sum, for each head and each row of each tile."""
    return kind.num_heads * chunks * tile * (kind.head_dim + 1) * 4 + MARGIN_BYTES


def _most_chunks(kind: Kind, num_processors: int) -> int:
    """Return the largest number of chunks that keys are cut into: two blocks for each processor."""
    return 2 * num_processors // kind.num_kv_heads


def _tile_of_single_tokens(kind: Kind) -> int:
    """Return the rows that a block computes at once. A token has one row per query head that shares a key head."""
    if kind.num_shared <= 16:
        return 16
    return 64 if kind.num_shared <= 64 or kind.head_dim >= 256 else LARGEST_TILE
