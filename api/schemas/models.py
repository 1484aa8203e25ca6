"""The list of models, and one of its cards."""

from __future__ import annotations

import msgspec


class ModelCard(msgspec.Struct, kw_only=True):
    """A served model. `root` and `max_model_len` are read by tools that know vLLM or SGLang."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "llmfw"
    root: str
    max_model_len: int


class ModelList(msgspec.Struct, kw_only=True):
    """All of them."""

    object: str = "list"
    data: list[ModelCard]
