"""Tables of cosines and sines by position, computed by a model's own rotary embedding."""

from __future__ import annotations

import torch
from torch import nn

from .library import largest, load_library

STEP = 1024


class RotaryTables:
    """Caches the cosines and sines of a rotary embedding for all positions up to the largest one requested.

    If the frequencies depend on the longest sequence (dynamic scaling), the tables are computed again in each
    step.

    Args:
        rotary: transformers' rotary embedding module.
        dtype: dtype of the tables.
    """

    def __init__(self, rotary: nn.Module, dtype: torch.dtype) -> None:
        self._rotary = rotary
        self._like = torch.empty(0, dtype=dtype, device="cpu")
        self._library = load_library(dtype)
        self._changes = getattr(rotary, "rope_type", None) in ("dynamic", "longrope")
        self._cosines = self._sines = self._like
        self._count = 0

    def of(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return each position's row in the tables, [T], and the tables of cosines and sines.

        Each table is [rows, head_dim].
        """
        if self._changes:
            return torch.arange(len(positions), dtype=torch.int64, device="cpu"), *self._ask(positions)
        positions = positions.contiguous()
        needed = largest(self._library, positions) + 1
        if needed > self._count:
            self._count = max(-(-needed // STEP) * STEP, 2 * self._count)
            self._cosines, self._sines = self._ask(torch.arange(self._count, dtype=torch.int64, device="cpu"))
        return positions, self._cosines, self._sines

    def _ask(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cosines, sines = self._rotary(self._like, position_ids=positions[None])
        return cosines[0].contiguous(), sines[0].contiguous()
