"""Cosines and sines by position, as a model's own rotary embedding has them."""

from __future__ import annotations

import torch
from torch import nn

from .library import largest, load_library

STEP = 1024


class RotaryTables:
    """Computes a rotary embedding for ranges of positions, and keeps the results.

    An embedding whose frequencies depend on the longest requested position is computed again at each step.

    Args:
        rotary: transformers' module.
        dtype: of the tables.
    """

    def __init__(self, rotary: nn.Module, dtype: torch.dtype) -> None:
        self._rotary = rotary
        self._like = torch.empty(0, dtype=dtype)
        self._library = load_library(dtype)
        self._changes = getattr(rotary, "rope_type", None) in ("dynamic", "longrope")
        self._cosines = self._sines = self._like
        self._count = 0

    def of(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return rows of two tables for positions [T], and the tables, [rows, head_dim]."""
        if self._changes:
            return torch.arange(len(positions)), *self._ask(positions)
        positions = positions.contiguous()
        needed = largest(self._library, positions) + 1
        if needed > self._count:
            self._count = max(-(-needed // STEP) * STEP, 2 * self._count)
            self._cosines, self._sines = self._ask(torch.arange(self._count))
        return positions, self._cosines, self._sines

    def _ask(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cosines, sines = self._rotary(self._like, position_ids=positions[None])
        return cosines[0].contiguous(), sines[0].contiguous()
