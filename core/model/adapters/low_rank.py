"""The two matrices of low rank that an adapter adds to one linear layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class LowRank:
    """Two matrices of low rank. An adapter adds hidden @ down.T @ up to a linear layer's output.

    Attributes:
        down: [rank, in_features].
        up: [rank, out_features], already multiplied by the adapter's scale.
    """

    down: torch.Tensor
    up: torch.Tensor

    @property
    def rank(self) -> int:
        """Number of rows of both matrices."""
        return len(self.down)
