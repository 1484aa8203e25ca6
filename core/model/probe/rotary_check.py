"""Refuses models whose rotary embeddings of one sequence depend on the lengths of other sequences.

transformers chooses the frequencies of the kinds `dynamic` and `longrope` by the largest position of a batch.
One client's answer would then depend on other clients' requests, and the frequencies of stored keys and new
keys would differ. `choose_context_length` and `long_rope` prevent that for configs that they understand. This
check runs the model, so it covers all other configs, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from ..failure.refusal import refused, refusing
from ..trial.module_trial import agree
from ..trial.packed import Packed, run_packed

KINDS = ("dynamic", "longrope")
"""Kinds of rotary embeddings whose frequencies depend on the largest position."""
IDS, OTHER = (5, 3, 4, 8, 6, 7), 9
"""Token ids of a short sequence, and of the only token of another one."""


def check_rotary(model: nn.Module, vocab_size: int, context_length: int) -> None:
    """Refuse a model whose results for a sequence depend on another sequence at the last position.

    Models whose config names no such kind of rotary embeddings are not run.

    Args:
        model: model in evaluation mode, loaded with llmfw's attention implementation.
        vocab_size: upper bound of the token ids to test with.
        context_length: maximum length of a sequence in tokens.

    Raises:
        ModelError: the logits differ.
    """
    if not has_rotary_by_length(model.config):
        return
    sequences = [[each % vocab_size for each in IDS], [OTHER % vocab_size]]
    step = Packed([len(IDS), 1])
    with refusing(model, "running it at its last position"):
        near, far = (
            run_packed(model, sequences, step, [*range(len(IDS)), position])[: len(IDS)]
            for position in (0, context_length - 1)
        )
    if not agree(near, far):
        raise refused(
            model,
            f"its rotary embeddings depend on the longest sequence of a step, up to {context_length} tokens; give a "
            "--context-length of at most the original_max_position_embeddings of its config",
        )


def has_rotary_by_length(config: Any) -> bool:
    """Return whether a config names, at any depth, a kind of rotary embeddings that depends on lengths."""
    return not set(KINDS).isdisjoint(_texts(config.to_dict()))


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a config's values, including nested lists and configs."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
