"""Refuses models whose config names unsupported kinds of layers. No weights need to be read for this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmfw.core.base.errors import ModelError

from ..failure.refusal import name_layers

SPARSE = ("indexed", "compressed", "sparse_", "_sparse")
"""Parts of transformers' names for sparse attention, which attends only to tokens that an indexer selects, or to
summaries of several tokens. The bare `sparse` is a layer with experts."""

INDEXED = frozenset({"indexed_attention", "deepseek_sparse_attention", "qwen_sparse_attention"})
"""Names for layers that attend to tokens that an indexer selects, which are served if the probe finds the indexer.
transformers 5.17 has the last two for what 5.23 calls `indexed_attention`."""


def check_layer_types(model_type: str, text_config: Any) -> None:
    """Raise ModelError if a layer has sparse attention other than to single tokens that an indexer selects."""
    types: Sequence[str] = getattr(text_config, "layer_types", None) or ()
    sparse = [
        i for i, kind in enumerate(types) if kind not in INDEXED and any(part in kind for part in SPARSE)
    ]
    if sparse:
        raise ModelError(
            f"{model_type} cannot be served: attention to compressed tokens or blocks ({types[sparse[0]]}) in "
            f"{name_layers(sparse, len(types))}; llmfw serves attention to single tokens"
        )
