"""How much scratch memory FlashInfer's fa2 kernels take, and where it is.

Where a step has few sequences, a kernel cuts their keys into chunks, and keeps what it found in each chunk, in float32,
until all are merged. FlashInfer recommends 128 MiB for that. It is not enough for 64 query heads, nor for a CUDA graph
of 512 sequences of 32, so the need is computed here, from the rule that its planner goes by (scheduler.cuh, 0.6.12).
"""

from __future__ import annotations

import torch

from .kind import Kind

RECOMMENDED_BYTES = 128 << 20
MARGIN_BYTES = 1 << 20  # rounding of each part's start
LARGEST_TILE = 128


class Scratch:
    """The memory that all kernels of one backend share: they run one after the other.

    Args:
        device: where they run.
        num_bytes: to begin with.
    """

    def __init__(self, device: torch.device, num_bytes: int) -> None:
        self._device = device
        self._buffer = self._allocate(num_bytes)

    def at_least(self, num_bytes: int) -> torch.Tensor:
        """Return the memory, uint8, all zeros when it is new; one of twice the size where it has become too small.

        Who has been given the smaller one keeps it: a captured graph knows its address. All that are kept together
        are then not larger than the last one.
        """
        if num_bytes > self._buffer.nbytes:
            self._buffer = self._allocate(max(num_bytes, 2 * self._buffer.nbytes))
        return self._buffer

    def _allocate(self, num_bytes: int) -> torch.Tensor:
        return torch.zeros(num_bytes, dtype=torch.uint8, device=self._device)


def bytes_for_steps(kind: Kind, num_processors: int) -> int:
    """Return what any step needs that is not in a CUDA graph.

    Args:
        kind: of the layers.
        num_processors: multiprocessors of the device.
    """
    return max(RECOMMENDED_BYTES, _bytes(kind, _most_chunks(kind, num_processors), LARGEST_TILE))


def bytes_for_graph(kind: Kind, num_processors: int, num_sequences: int) -> int:
    """Return what a CUDA graph of single tokens needs: it keeps room for each tile of each sequence, cut or not."""
    tile = _tile_of_single_tokens(kind)
    tiles = -(-num_sequences * kind.num_shared // tile) + num_sequences - 1
    return _bytes(kind, max(tiles, _most_chunks(kind, num_processors)), tile)


def _bytes(kind: Kind, chunks: int, tile: int) -> int:
    """Return the bytes of a row of float32 values, and a sum, for each head and each row of each tile."""
    return kind.num_heads * chunks * tile * (kind.head_dim + 1) * 4 + MARGIN_BYTES


def _most_chunks(kind: Kind, num_processors: int) -> int:
    """Return into how many chunks keys are cut at most: two blocks for each processor."""
    return 2 * num_processors // kind.num_kv_heads


def _tile_of_single_tokens(kind: Kind) -> int:
    """Return how many rows a block computes at once; each token has one for each query head that shares a key head."""
    if kind.num_shared <= 16:
        return 16
    return 64 if kind.num_shared <= 64 or kind.head_dim >= 256 else LARGEST_TILE
