"""Combines a step's known tokens with sampled tokens that are still in flight, on the device."""

from __future__ import annotations

import torch

from llmfw.core.base.step import NOT_IN_FLIGHT


def input_ids(known: torch.Tensor, sources: torch.Tensor, last_tokens: torch.Tensor) -> torch.Tensor:
    """Return the input tokens of a step, on the device: [T].

    Args:
        known, sources: `StepInput.tokens` and `StepInput.sources`: [T].
        last_tokens: last sampled token of each row: [rows].
    """
    return torch.where(sources == NOT_IN_FLIGHT, known, last_tokens[sources.clamp_min(0)])
