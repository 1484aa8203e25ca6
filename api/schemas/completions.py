"""Completions: request, reply and chunk (one form for both)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from .common import MAX_CHOICES, GenerationRequest, SmallInt, Usage
from .logprobs import CompletionLogprobs, NumTop

DEFAULT_MAX_TOKENS = 16


class CompletionRequest(GenerationRequest, kw_only=True):
    """Body of POST /v1/completions. `prompt`: text, token ids, or a list of either."""

    prompt: str | list[str | SmallInt | list[SmallInt]]
    suffix: str | None = None
    echo: bool | None = None
    best_of: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHOICES)] | None = None
    logprobs: NumTop | bool | None = None


class CompletionChoice(msgspec.Struct, kw_only=True):
    """One continuation, or the next piece of it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None


class Completion(msgspec.Struct, kw_only=True):
    """The reply, or one chunk of a stream."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
