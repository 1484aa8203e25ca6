"""Applies masks of allowed tokens to logits."""

from __future__ import annotations

import numpy as np
import torch

from llmfw.core.base.step import TokenMasks

from ..device.staging import Staging


def apply_masks(masks: TokenMasks, logits: torch.Tensor, staging: Staging) -> None:
    """Set the logits of forbidden tokens to minus infinity, in place.

    Args:
        masks: masks of some rows of the logits.
        logits: logits of the tokens to sample: [S, vocab].
        staging: sends the masks to the device.
    """
    places, words = staging.send(np.array(masks.places, dtype=np.int64), masks.words)
    bits = (words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=logits.device)) & 1
    forbidden = bits.flatten(1)[:, : logits.shape[-1]] == 0
    logits[places] = logits[places].masked_fill(forbidden, float("-inf"))
