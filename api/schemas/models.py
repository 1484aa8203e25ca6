"""The list of models, and one model."""

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
    """List of all served models."""

    object: str = "list"
    data: list[ModelCard]
