"""Fields that the bodies of chat completions and completions share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from .refusals import REFUSALS, Refusal
from .token_fields import TokenFields

SmallInt = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A 32-bit integer, so that no accepted value can overflow in later computations."""

MAX_CHOICES = 128
"""Maximum number of choices of one prompt."""

Timeout = Annotated[float, msgspec.Meta(gt=0, le=24 * 3600)]
"""Seconds that a request may take."""

CacheSalt = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]

GRAMMAR_FIELDS = (
    "response_format",
    "json_schema",
    "regex",
    "ebnf",
    "choice",
    "structural_tag",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "grammar",
    "structured_outputs",
)
"""Fields that constrain the output (see `api.text.structured`)."""


class Inert(msgspec.Struct, kw_only=True):
    """Fields of OpenAI's API that have no effect here.

    Their types are checked, and they are reported as ignored.
    """

    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None
    prediction: dict[str, Any] | None = None
    verbosity: str | None = None


class Body(msgspec.Struct):
    """A request body. Some unknown fields (`refused`) are refused; the others are reported as ignored."""

    refused: ClassVar[Mapping[str, Refusal]] = {}
    """Fields that this body does not have, and that are refused because they would change the answer."""


class StreamOptions(Body, kw_only=True):
    """Options of a streamed reply."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class UsageOptions(StreamOptions, kw_only=True):
    """Options of a streamed chat or completion.

    `continuous_usage_stats` adds the token counts to each chunk.
    """

    continuous_usage_stats: bool | None = None


class GenerationRequest(Body, TokenFields, kw_only=True):
    """Fields shared by chat completion and completion requests.

    For a field that is None, the server's default applies.
    """

    model: str | None = None
    max_tokens: SmallInt | None = None
    min_tokens: SmallInt | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: SmallInt | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    repeat_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[SmallInt] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    seed: int | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: UsageOptions | None = None
    priority: SmallInt | None = None
    timeout: Timeout | None = None
    cache_salt: CacheSalt | None = None
    user: str | None = None
    safety_identifier: str | None = None

    response_format: dict[str, Any] | None = None
    json_schema: str | dict[str, Any] | bool | None = None
    regex: str | None = None
    ebnf: str | None = None
    choice: list[str] | None = None
    structural_tag: str | dict[str, Any] | None = None
    guided_json: str | dict[str, Any] | bool | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    grammar: str | None = None
    structured_outputs: dict[str, Any] | None = None

    refused: ClassVar[Mapping[str, Refusal]] = REFUSALS


class PromptTokensDetails(msgspec.Struct):
    """Breakdown of the prompt tokens."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct):
    """Breakdown of the generated tokens."""

    reasoning_tokens: int


class Usage(msgspec.Struct):
    """Token counts of a request.

    `reasoning_tokens` is a field of SGLang. Only chats with a reasoning parser have it.
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails
    reasoning_tokens: int | msgspec.UnsetType = msgspec.UNSET
