"""Refuses kinds of layers that cannot be served, by their names in the config, before any weights are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmfw.core.base.errors import ModelError

from .load_failure import name_layers

SPARSE = frozenset(
    {
        "indexed_attention",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
        "minimax_m3_sparse",
    }
)
"""transformers' names for attention to tokens that an indexer selects, or to summaries of several tokens."""


def check_layer_types(model_type: str, text_config: Any) -> None:
    """Refuse sparse attention: a backend of llmfw attends to all tokens of a window.

    Raises:
        ModelError: a layer attends to a selection of the tokens, or to compressed ones.
    """
    types: Sequence[str] = getattr(text_config, "layer_types", None) or ()
    sparse = [i for i, kind in enumerate(types) if kind in SPARSE]
    if sparse:
        raise ModelError(
            f"{model_type} cannot be served: attention to selected or compressed tokens ({types[sparse[0]]}) in "
            f"{name_layers(sparse, len(types))}; llmfw serves full and sliding-window attention"
        )
