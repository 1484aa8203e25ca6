"""Tokenising: request and reply of /v1/tokenize and /v1/detokenize."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from .common import Body, SmallInt
from .refusals import PROMPT_REFUSALS, Refusal

Tokens = list[int]


class TokenizeRequest(Body, kw_only=True):
    """Body of POST /v1/tokenize: a prompt, prompts, or a chat."""

    model: str | None = None
    prompt: str | list[str] | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None

    refused: ClassVar[Mapping[str, Refusal]] = PROMPT_REFUSALS


class Tokenized(msgspec.Struct, kw_only=True):
    """The reply. Of several prompts, `tokens`, `count` and `token_strs` are lists with one item for each."""

    tokens: list[int | Tokens]
    count: int | list[int]
    max_model_len: int
    token_strs: list[str | list[str]] | UnsetType = UNSET


class DetokenizeRequest(Body, kw_only=True):
    """Body of POST /v1/detokenize: one list of token ids, or several."""

    model: str | None = None
    tokens: list[SmallInt | list[SmallInt]]
    skip_special_tokens: bool | None = None


class TokenizerInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the tokenizer's files say, by the names of tokenizer_config.json; what they do not say is left out."""

    bos_token: str | None = None
    eos_token: str | None = None
    pad_token: str | None = None
    unk_token: str | None = None
    chat_template: str | None = None


class Detokenized(msgspec.Struct):
    """The reply: the text as vLLM calls it, and as SGLang does. Of several lists of tokens, lists."""

    prompt: str | list[str]
    text: str | list[str]
