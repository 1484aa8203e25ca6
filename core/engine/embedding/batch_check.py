"""Refuses models whose outputs for a text depend on the other texts in its batch.

One client's vectors would then depend on other clients' texts. Causes are: the model ignores attention masks,
its experts have a limited capacity, or its rotary embeddings have frequencies that depend on the longest text
of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers.modeling_utils import PreTrainedModel

from llmfw.core.model.failure.refusal import refused, refusing
from llmfw.core.model.probe.rotary_check import has_rotary_by_length
from llmfw.core.model.trial.module_trial import agree

from .batch import padded

TRIAL = ((2, 3, 2, 4, 5, 2), (2, 5, 3, 4, 2))
"""Token ids of two texts for a trial run: the second is padded in a batch with the first. Their lengths have no common
divisor, so the trial fails for a model that takes only multiples of a length."""
TOLERANCE = 1e-2
"""Largest difference between a text's outputs in a batch and alone, relative to the outputs, in any dtype."""


def check_batches(
    module: PreTrainedModel, encode: Callable[[Sequence[Sequence[int]]], Sequence[torch.Tensor]]
) -> None:
    """Refuse a model whose outputs for a text depend on the other texts of a batch.

    Args:
        module: model in evaluation mode, which `encode` runs.
        encode: function that takes the token ids of several texts as one batch, and returns an output for
            each text.

    Raises:
        ModelError: the outputs differ, or the model does not run.
    """
    with refusing(module, "running it on a few tokens"):
        together = encode(TRIAL)
        alone = [encode([text])[0] for text in TRIAL]
    if not all(map(_close, together, alone)):
        raise refused(module, "a text's outputs depend on the other texts of its batch")


@torch.inference_mode()
def check_long_texts(module: PreTrainedModel, max_length: int) -> None:
    """Refuse a model whose rotary embeddings of a text depend on the longest text of a batch.

    Does not run a model if its config names no rotary embeddings of this kind.

    Args:
        module: model in evaluation mode.
        max_length: length of the longest text in tokens.

    Raises:
        ModelError: the hidden states or the logits differ, or the model takes no positions.
    """
    if not has_rotary_by_length(module.config):
        return
    ids, mask = padded([TRIAL[0], TRIAL[0]])
    positions = torch.arange(len(TRIAL[0]), device="cpu").repeat(2, 1)
    far_positions = positions.clone()
    far_positions[1, -1] = max(max_length, len(TRIAL[0])) - 1
    with refusing(module, "running it at its last position"):
        near, far = (_run(module, ids, mask, each) for each in (positions, far_positions))
    if max_length > len(TRIAL[0]) and torch.equal(near[1], far[1]):
        raise refused(
            module, "it ignores the positions of tokens, so its rotary embeddings cannot be checked"
        )
    if not agree(near[0], far[0]):
        raise refused(
            module,
            f"its rotary embeddings depend on the longest text of a batch, up to {max_length} tokens; give a "
            "--context-length of at most the original_max_position_embeddings of its config",
        )


def _run(
    module: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Run a model with given positions; return its logits if it has a head, else its hidden states."""
    given = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
    output: Any = module(
        **{name: tensor.to(module.device) for name, tensor in given.items()}, return_dict=True
    )
    found: torch.Tensor = output.logits if hasattr(output, "logits") else output.last_hidden_state
    return found


def _close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    size = float(expected.abs().max()) + 1.0
    return float((found - expected).abs().max()) <= TOLERANCE * size
