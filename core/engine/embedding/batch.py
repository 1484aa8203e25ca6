"""Builds padded batches of prompts for encoders."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def padded(prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and mask of prompts, padded on the right, on the CPU: [n, T] each.

    The padding may be any token in the vocabulary, because it is masked.
    """
    longest = max(map(len, prompts))
    ids = torch.zeros(len(prompts), longest, dtype=torch.long, device="cpu")
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt, dtype=torch.long, device="cpu")
        mask[row, : len(prompt)] = 1
    return ids, mask
