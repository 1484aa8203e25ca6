"""Bodies of requests. Fields that these classes lack have no effect, and are reported as ignored."""

from __future__ import annotations

from typing import Any

import msgspec

Texts = str | list[str]


class PoolingBody(msgspec.Struct, kw_only=True):
    """Body of POST /pooling: as that of /v1/embeddings, and which pooling."""

    model: str | None = None
    task: str | None = None
    input: str | list[str | int | list[int]] | None = None
    messages: list[dict[str, Any]] | None = None
    encoding_format: str | None = None
    dimensions: int | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    timeout: float | None = None
    user: str | None = None
    data: Any = None
    chat_template: str | None = None
    embed_dtype: str | None = None
    endianness: str | None = None
    normalize: bool | None = None
    softmax: bool | None = None
    activation: bool | None = None
    use_activation: bool | None = None
    truncate_prompt_tokens: int | None = None


class SimilarityBody(msgspec.Struct, kw_only=True):
    """Fields that /score and /rerank share. Those from `instruction` on are refused."""

    model: str | None = None
    timeout: float | None = None
    user: str | None = None
    instruction: str | None = None
    chat_template: str | None = None
    activation: bool | None = None
    use_activation: bool | None = None
    softmax: bool | None = None
    truncate_prompt_tokens: int | None = None
    max_tokens_per_doc: int | None = None
    max_tokens_per_query: int | None = None
    max_chunks_per_doc: int | None = None
    rank_fields: list[str] | None = None


class ScoreBody(SimilarityBody, kw_only=True):
    """Body of POST /score: two texts, or two lists, under one of four pairs of names."""

    text_1: Texts | None = None
    text_2: Texts | None = None
    queries: Texts | None = None
    documents: Texts | None = None
    items: Texts | None = None
    data_1: Texts | None = None
    data_2: Texts | None = None
    query: Any = None
    label_token_ids: list[int] | None = None


class TextDocument(msgspec.Struct):
    """A document of a rerank request in the form of an object, instead of a plain string."""

    text: str


class ClassifyBody(msgspec.Struct, kw_only=True):
    """Body of POST /classify. A model without a classification head needs `labels`."""

    input: Texts
    labels: list[str] | None = None
    model: str | None = None
    timeout: float | None = None
    user: str | None = None
    activation: bool | None = None
    use_activation: bool | None = None
    truncate_prompt_tokens: int | None = None
    chat_template: str | None = None


class RerankBody(SimilarityBody, kw_only=True):
    """Body of POST /rerank."""

    query: str
    documents: list[str | TextDocument]
    top_n: int | None = None
    return_documents: bool | None = None


class CohereBody(msgspec.Struct, kw_only=True):
    """Body of POST /v2/embed."""

    model: str | None = None
    texts: list[str] | None = None
    inputs: list[dict[str, Any]] | None = None
    images: list[str] | None = None
    input_type: str | None = None
    embedding_types: list[str] | None = None
    output_dimension: int | None = None
    truncate: str | None = None
    max_tokens: int | None = None
