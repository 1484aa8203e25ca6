"""Refuses models whose config names unsupported kinds of layers. No weights need to be read for this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmfw.core.base.errors import ModelError

from ..failure.refusal import name_layers

SPARSE = ("indexed", "compressed", "sparse_", "_sparse")
"""Parts of transformers' names for sparse attention, which attends only to tokens that an indexer selects, or to
summaries of several tokens. The names differ by version: 5.17 has `deepseek_sparse_attention` and
`qwen_sparse_attention` for what 5.23 calls `indexed_attention`. The bare `sparse` is a layer with experts."""


def check_layer_types(model_type: str, text_config: Any) -> None:
    """Raise ModelError if a layer has sparse attention, because llmfw's backends attend to all tokens of a
    window."""
    types: Sequence[str] = getattr(text_config, "layer_types", None) or ()
    sparse = [i for i, kind in enumerate(types) if any(part in kind for part in SPARSE)]
    if sparse:
        raise ModelError(
            f"{model_type} cannot be served: attention to selected or compressed tokens ({types[sparse[0]]}) in "
            f"{name_layers(sparse, len(types))}; llmfw serves full and sliding-window attention"
        )
