"""The tokens of a step on the device, some of which only the device knows."""

from __future__ import annotations

import torch

from llmfw.core.base.step import NOT_IN_FLIGHT


def input_ids(known: torch.Tensor, sources: torch.Tensor, last_tokens: torch.Tensor) -> torch.Tensor:
    """Return the tokens of a step, on the device: [T].

    Args:
        known, sources: `StepInput.tokens` and `StepInput.sources`: [T].
        last_tokens: what each row has sampled last: [rows].
    """
    return torch.where(sources == NOT_IN_FLIGHT, known, last_tokens[sources.clamp_min(0)])
