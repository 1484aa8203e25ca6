"""Replies, with the fields of vLLM's and Cohere's replies."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class Usage(msgspec.Struct):
    """Token counts. Each text is embedded once, and counted once."""

    prompt_tokens: int
    total_tokens: int


class Pooled(msgspec.Struct, kw_only=True):
    """One vector of /pooling."""

    index: int
    object: str = "pooling"
    data: list[float] | str


class PoolingReply(msgspec.Struct, kw_only=True):
    """Reply of POST /pooling."""

    id: str
    object: str = "list"
    created: int
    model: str
    data: list[Pooled]
    usage: Usage


class Score(msgspec.Struct, kw_only=True):
    """The score of one pair. Its range depends on the reply's method."""

    index: int
    object: str = "score"
    score: float


class ScoreReply(msgspec.Struct, kw_only=True):
    """Reply of POST /score.

    Attributes:
        method: "cross-encoder", "embeddings" or "log-probabilities".
    """

    id: str
    object: str = "list"
    created: int
    model: str
    data: list[Score]
    usage: Usage
    method: str


class Document(msgspec.Struct):
    """A ranked document."""

    text: str


class Ranked(msgspec.Struct, kw_only=True):
    """One document's index in the request, and its score."""

    index: int
    document: Document | UnsetType = UNSET
    relevance_score: float


class RerankReply(msgspec.Struct, kw_only=True):
    """Reply of POST /rerank. The most relevant documents come first.

    Attributes:
        method: as in `ScoreReply`.
    """

    id: str
    model: str
    usage: Usage
    results: list[Ranked]
    method: str


class LabelScores(msgspec.Struct, kw_only=True):
    """The scores of one text's labels, and the label of the largest."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class ClassifyReply(msgspec.Struct, kw_only=True):
    """Reply of POST /classify.

    Attributes:
        method: "classification-head", "embeddings" or "log-probabilities".
        labels: names of the scores.
    """

    id: str
    object: str = "list"
    created: int
    model: str = ""
    method: str
    labels: list[str]
    data: list[LabelScores]
    usage: Usage


class TypedVectors(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The vectors in each form that was asked for."""

    floats: list[list[float]] | None = msgspec.field(default=None, name="float")
    base64: list[str] | None = None
    binary: list[list[int]] | None = None
    ubinary: list[list[int]] | None = None


class Tokens(msgspec.Struct):
    """Token count in Cohere's form."""

    input_tokens: int


class APIVersion(msgspec.Struct):
    """Version of Cohere's API."""

    version: str = "2"


class Meta(msgspec.Struct):
    """Version and token counts in Cohere's form."""

    api_version: APIVersion
    tokens: Tokens


class CohereReply(msgspec.Struct, kw_only=True):
    """Reply of POST /v2/embed."""

    id: str
    embeddings: TypedVectors
    texts: list[str]
    meta: Meta
    response_type: str = "embeddings_by_type"
