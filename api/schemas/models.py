"""Bodies of `/v1/models`: the list of models, and one model's card."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class ModelCard(msgspec.Struct, kw_only=True):
    """A served model. Tools for vLLM or SGLang read `root` and `max_model_len`.

    Attributes:
        root: hub id; for a folder the same as `id`.
        parent: for an adapter, the model that it adapts.
        weight_version: version of the model's weights.
    """

    id: str
    object: str = "model"
    created: int
    owned_by: str = "llmfw"
    root: str
    max_model_len: int
    parent: str | UnsetType = UNSET
    weight_version: str | UnsetType = UNSET


class ModelList(msgspec.Struct, kw_only=True):
    """All served models."""

    object: str = "list"
    data: list[ModelCard]
