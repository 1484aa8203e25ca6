"""Compares the logits of a model before and after a model adapter has changed it.

Before the change, transformers' own eager code computes attention. After it, plain float32 code computes attention with
the scale, the window and the soft cap that each adapted layer passes on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from llmfw.core.interfaces.layers import LayerSpec

from ..attention.plain_attention import PlainStep
from .packed import run_packed
from .relative_distance import relative_distance

NUM_TOKENS = 24
"""Tokens that are compared at the start and at the end of the sequence."""
MAX_WINDOW = 1024
"""Largest window that is tried. A longer sequence would take minutes with a large model."""
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.1}
"""Maximum change of a token's logits, relative to their norm. Rounding differences grow through the layers."""


class AdapterTrial:
    """Keeps a model's logits for one sequence, to compare them with those of the adapted model.

    The sequence is longer than the windows that the config names, as far as `MAX_WINDOW` and the model's limit
    allow.

    Args:
        model: the model as transformers has loaded it, with eager attention.
        vocab_size: upper bound of the token ids to test with.
        text_config: config of the model's text part.
    """

    def __init__(self, model: nn.Module, vocab_size: int, text_config: Any) -> None:
        limit = getattr(text_config, "max_position_embeddings", None)
        length = 2 * NUM_TOKENS + max([0, *_windows(text_config)])
        if isinstance(limit, int) and limit > 0:
            length = min(length, limit)
        self._ids = [(7 * i * i + 3 * i + 5) % vocab_size for i in range(length)]
        ids = torch.tensor([self._ids], device=next(model.parameters()).device)
        with torch.inference_mode():
            logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits
        self._before = logits[0].float()

    def distance(self, model: nn.Module, layers: list[LayerSpec]) -> float:
        """Return the relative change of the logits, at the sequence's start or end, whichever is larger.

        Args:
            model: the adapted model.
            layers: its attention layers by index.
        """
        after = run_packed(model, [self._ids], PlainStep(layers, [len(self._ids)]))
        parts = (slice(NUM_TOKENS), slice(-NUM_TOKENS, None))
        # Python's max() may lose NaN.
        changes = [relative_distance(self._before[part], after[part]) for part in parts]
        return float(torch.tensor(changes).max())


def _windows(text_config: Any) -> list[int]:
    """Return the fields of a config that seem to be sizes of windows, up to `MAX_WINDOW`."""
    fields = text_config.to_dict().items()
    return [min(value, MAX_WINDOW) for name, value in fields if "window" in name and type(value) is int]
