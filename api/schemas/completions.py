"""Completions: request, reply and chunk (one form for both)."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from .common import UNSUPPORTED, GenerationRequest, SmallInt, Usage

DEFAULT_MAX_TOKENS = 16


class CompletionRequest(GenerationRequest, kw_only=True):
    """Body of POST /v1/completions. `prompt`: text, token ids, or a list of either."""

    prompt: str | list[str | SmallInt | list[SmallInt]]
    echo: bool | None = None
    best_of: SmallInt | None = None

    refused: ClassVar[dict[str, str]] = {
        **UNSUPPORTED,
        "logprobs": "log probabilities are not supported yet",
        "suffix": "this server continues text, it does not fill in",
    }

    def asks(self, name: str, value: Any) -> bool:
        if name == "logprobs":  # 0 asks for the log probability of each sampled token
            return value is not None and value is not False
        return super().asks(name, value)


class CompletionChoice(msgspec.Struct, kw_only=True):
    """One continuation, or the next piece of it."""

    index: int
    text: str
    logprobs: None = None
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
