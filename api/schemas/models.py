"""Bodies of `/v1/models`: the list of models, and one model's card."""

from __future__ import annotations

import msgspec


class ModelCard(msgspec.Struct, kw_only=True):
    """A served model. Tools for vLLM or SGLang read `root` and `max_model_len`.

    Attributes:
        root: hub id; for a folder the same as `id`.
    """

    id: str
    object: str = "model"
    created: int
    owned_by: str = "llmfw"
    root: str
    max_model_len: int


class ModelList(msgspec.Struct, kw_only=True):
    """All served models."""

    object: str = "list"
    data: list[ModelCard]
