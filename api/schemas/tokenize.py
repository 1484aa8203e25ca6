"""Requests and replies of /v1/tokenize and /v1/detokenize."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from .common import Body, SmallInt
from .refusals import PROMPT_REFUSALS, Refusal, absent

Tokens = list[int]


class TokenizeRequest(Body, kw_only=True):
    """Body of POST /v1/tokenize: a prompt, a list of prompts, or a chat."""

    model: str | None = None
    prompt: str | list[str] | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None

    refused: ClassVar[Mapping[str, Refusal]] = {
        **PROMPT_REFUSALS,
        "content": absent(why="content is called prompt here"),
    }


class Tokenized(msgspec.Struct, kw_only=True):
    """Reply of POST /v1/tokenize.

    For several prompts, `tokens`, `count` and `token_strs` have one item per prompt.
    """

    tokens: list[int | Tokens]
    count: int | list[int]
    max_model_len: int
    token_strs: list[str | list[str]] | UnsetType = UNSET


class DetokenizeRequest(Body, kw_only=True):
    """Body of POST /v1/detokenize: a list of token ids, or a list of such lists."""

    model: str | None = None
    tokens: list[SmallInt | list[SmallInt]]
    skip_special_tokens: bool | None = None


class TokenizerInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Settings from the tokenizer's files, named as in tokenizer_config.json. Missing ones are omitted."""

    bos_token: str | None = None
    eos_token: str | None = None
    pad_token: str | None = None
    unk_token: str | None = None
    chat_template: str | None = None


class Detokenized(msgspec.Struct):
    """Reply of POST /v1/detokenize: the text, under vLLM's name (`prompt`) and SGLang's (`text`).

    For several lists of token ids, both are lists.
    """

    prompt: str | list[str]
    text: str | list[str]
