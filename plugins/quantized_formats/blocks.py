"""Blocks of a weight, which share a scale."""

from __future__ import annotations

import torch

Block = tuple[int, int]
"""Numbers of outputs and inputs of a block. The last blocks may be cut off."""


def num_blocks(out_features: int, in_features: int, block: Block) -> tuple[int, int]:
    """Return the number of blocks of a weight along its outputs, and along its inputs."""
    return -(-out_features // block[0]), -(-in_features // block[1])


def expanded(scales: torch.Tensor, block: Block, out_features: int, in_features: int) -> torch.Tensor:
    """Return the scale of each element of a weight, [out_features, in_features].

    Args:
        scales: scale of each block, in the shape that `num_blocks` returns.
    """
    rows = scales.repeat_interleave(block[0], 0)[:out_features]
    return rows.repeat_interleave(block[1], 1)[:, :in_features]
