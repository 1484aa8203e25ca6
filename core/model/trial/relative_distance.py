"""Measures how much logits have changed."""

from __future__ import annotations

import torch


def relative_distance(before: torch.Tensor, after: torch.Tensor) -> float:
    """Return the relative change of logits, [T, vocab]: the median over the T tokens.

    For one token, it is the norm of the change divided by the norm of the logits before.

    The median ignores single tokens that are routed to other experts because of rounding.
    """
    before, after = before.double(), after.double()
    moved = (after - before).norm(dim=-1)
    return float(torch.where(moved == 0, moved, moved / before.norm(dim=-1)).median())
