"""Completions: request, and reply. Chunks of a stream have the form of the reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from .common import MAX_CHOICES, GenerationRequest, SmallInt, Usage
from .logprobs import CompletionLogprobs, NumTop
from .refusals import REFUSALS, Refusal, absent, of_prompt, renamed
from .token_fields import PromptLogprobs

DEFAULT_MAX_TOKENS = 16


class CompletionRequest(GenerationRequest, kw_only=True):
    """Body of POST /v1/completions. `prompt` is a text, a list of token ids, or a list of either."""

    prompt: str | list[str | SmallInt | list[SmallInt]]
    suffix: str | None = None
    echo: bool | None = None
    best_of: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHOICES)] | None = None
    logprobs: NumTop | bool | None = None

    refused: ClassVar[Mapping[str, Refusal]] = {
        **REFUSALS,
        "add_special_tokens": of_prompt("send token ids to decide about special tokens", True),
        "messages": absent([], why="/v1/chat/completions takes them"),
        "reasoning": renamed("reasoning_effort", neutral=({},)),
    }


class CompletionChoice(msgspec.Struct, kw_only=True):
    """One choice of a reply, or its next piece in a chunk.

    In a stream, only a choice's last chunk has `matched_stop` and `stop_reason`.
    """

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    matched_stop: int | str | UnsetType | None = UNSET
    stop_reason: int | str | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(msgspec.Struct, kw_only=True):
    """Reply of POST /v1/completions, or one chunk of its stream."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
