"""Embeddings: request and reply."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from .common import Body, SmallInt, Timeout


class EmbeddingRequest(Body, kw_only=True):
    """Body of POST /v1/embeddings. `input`: text, token ids, or a list of either."""

    input: str | list[str | SmallInt | list[SmallInt]]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: SmallInt | None = None
    timeout: Timeout | None = None
    user: str | None = None

    refused: ClassVar[dict[str, str]] = {
        "truncate_prompt_tokens": "an input that is too long is refused, never cut",
        "messages": "give input; a chat template makes no embeddings",
    }


class Embedding(msgspec.Struct, kw_only=True):
    """One vector: numbers, or float32 in little-endian order as base64."""

    object: str = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(msgspec.Struct, kw_only=True):
    """Token counts; there are no new tokens."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct, kw_only=True):
    """The reply."""

    object: str = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
