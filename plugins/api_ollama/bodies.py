"""Bodies of Ollama's requests. Fields that these classes lack have no effect, and are reported as ignored."""

from __future__ import annotations

from typing import Any

import msgspec

KeepAlive = str | float | None


class Options(msgspec.Struct, kw_only=True):
    """Options of a request that change the answer."""

    num_predict: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    mirostat: int | None = None
    tfs_z: float | None = None
    typical_p: float | None = None
    penalize_newline: bool | None = None


class AnswerBody(msgspec.Struct, kw_only=True):
    """Fields that `ChatBody` and `GenerateBody` share."""

    model: str
    stream: bool | None = None
    format: str | dict[str, Any] | None = None
    think: bool | str | None = None
    options: Options | None = None
    keep_alive: KeepAlive = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    template: str | None = None
    render_only: bool | None = msgspec.field(default=None, name="_debug_render_only")


class ChatBody(AnswerBody, kw_only=True):
    """Body of POST /api/chat."""

    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None


class GenerateBody(AnswerBody, kw_only=True):
    """Body of POST /api/generate."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    context: list[int] | None = None
    images: list[Any] | None = None
    raw: bool | None = None


class EmbedBody(msgspec.Struct, kw_only=True):
    """Body of POST /api/embed.

    Ollama's field `truncate` has no effect: an input that is too long is refused, and never truncated.
    """

    model: str
    input: str | list[str] | None = None
    dimensions: int | None = None


class EmbeddingsBody(msgspec.Struct, kw_only=True):
    """Body of POST /api/embeddings."""

    model: str
    prompt: str | None = None


class ShowBody(msgspec.Struct, kw_only=True):
    """Body of POST /api/show. Older clients call the model `name`."""

    model: str | None = None
    name: str | None = None
    verbose: bool | None = None
