"""Rotary embeddings of the kind `longrope`: short factors up to the original length, long factors above it.

transformers chooses the factors by the longest sequence of a batch, and computes all keys again when a
sequence grows beyond the original length. llmfw keeps keys, so llmfw uses one list of factors for all
sequences: the long factors if sequences may be longer than the original length, otherwise the short factors.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ..failure.refusal import refused

logger = logging.getLogger(__name__)

KIND = "longrope"
NUM_POSITIONS = 8
"""Positions at which the angles are compared."""


def has_long_factors(text_config: Any) -> bool:
    """Return whether a model needs only its long factors for sequences above the original length.

    Phi-MoE scales long sequences by another number, and keeps the short factors.
    """
    rope = getattr(text_config, "rope_parameters", None) or {}
    return rope.get("rope_type") == KIND and not rope.keys() & {"short_mscale", "long_mscale"}


def take_long_factors(model: nn.Module, text_config: Any, context_length: int) -> None:
    """Make a model use its long factors for all sequences, if the context is longer than the original length.

    Args:
        model: the model as transformers has loaded it.
        text_config: config of the model's text part.
        context_length: maximum length of a sequence in tokens.

    Raises:
        ModelError: the model's code computes long sequences in another way.
    """
    if not has_long_factors(text_config):
        return
    original = text_config.rope_parameters["original_max_position_embeddings"]
    if context_length <= original:
        return
    found = list(_rotary_modules(model))
    if not found or not all(_take(module, original) for module in found):
        raise refused(
            model,
            f"its code does not choose between short and long rotary factors as transformers' other models do; give "
            f"--context-length {original} or less",
        )
    logger.info(
        "Rotary embeddings: all sequences use the long factors, because the context of %d tokens is longer than the "
        "original %d; --context-length %d takes the short ones",
        *(context_length, original, original),
    )


def _rotary_modules(model: nn.Module) -> Iterator[Any]:
    return (module for module in model.modules() if getattr(module, "rope_type", None) == KIND)


def _take(module: Any, original: int) -> bool:
    """Make a module use the long factors for all positions; return whether the module now does so."""
    device = module.inv_freq.device
    short = torch.arange(NUM_POSITIONS, device=device)[None]
    long = torch.cat([short, short + original], dim=1)
    like = torch.zeros(1, device=device)
    expected = [angles[:, :NUM_POSITIONS] for angles in module(like, long)]
    frequencies, _ = ROPE_INIT_FUNCTIONS[KIND](module.config, device, seq_len=original + 1)
    module.original_inv_freq = frequencies
    module.inv_freq = frequencies.clone()
    return all(map(torch.equal, module(like, short), expected))
