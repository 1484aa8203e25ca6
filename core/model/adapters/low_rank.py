"""What an adapter adds to one linear layer: two matrices of low rank."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class LowRank:
    """Two matrices whose product an adapter adds to a linear layer's weight: hidden @ down.T @ up is added to its output.

    Attributes:
        down: [rank, in_features].
        up: [rank, out_features], with the adapter's scale in it.
    """

    down: torch.Tensor
    up: torch.Tensor

    @property
    def rank(self) -> int:
        """Number of rows of both matrices."""
        return len(self.down)
