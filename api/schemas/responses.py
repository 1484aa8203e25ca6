"""Bodies of `/v1/responses`: request, response object, output items, and events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from .common import GRAMMAR_FIELDS, Body, CacheSalt, SmallInt, StreamOptions, Timeout
from .logprobs import NumTop, TokenEntry
from .refusals import PROMPT_REFUSALS, REFUSALS, Refusal, absent, of_prompt, renamed
from .token_fields import TokenId

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Status = Literal["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"]

_OF_CONVERSATIONS: Mapping[str, Refusal] = {
    "context_management": of_prompt("this server does not compact conversations", {}, []),
    "conversation": of_prompt("this server keeps no conversation objects; use previous_response_id"),
    "prompt": of_prompt("this server keeps no prompt templates; use instructions and input"),
    "messages": renamed("input"),
}


class ReasoningConfig(Body, kw_only=True):
    """How much the model thinks. OpenAI's other settings of `reasoning` are reported as ignored."""

    effort: Effort | None = None


class TextConfig(Body, kw_only=True):
    """Structured output (`format`). `verbosity` is reported as ignored."""

    format: dict[str, Any] | None = None


class InputRequest(Body, kw_only=True):
    """Body of POST /v1/responses/input_tokens: the fields that make up the prompt."""

    model: str | None = None
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    truncation: Literal["auto", "disabled"] | None = None
    reasoning: ReasoningConfig | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None

    refused: ClassVar[Mapping[str, Refusal]] = {**PROMPT_REFUSALS, **_OF_CONVERSATIONS}


class ResponsesRequest(InputRequest, kw_only=True):
    """Body of POST /v1/responses.

    OpenAI's API lacks the fields after the blank line; their meaning is the same as in chat completions.
    """

    background: bool | None = None
    include: list[str] | None = None
    max_output_tokens: SmallInt | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_logprobs: NumTop | None = None
    top_p: float | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    allowed_token_ids: list[TokenId] | None = None
    bad_words: list[str] | None = None
    cache_salt: CacheSalt | None = None
    constrained_logprobs: bool | None = None
    frequency_penalty: float | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    logit_bias: dict[str, float] | None = None
    min_p: float | None = None
    min_tokens: SmallInt | None = None
    no_stop_trim: bool | None = None
    presence_penalty: float | None = None
    priority: SmallInt | None = None
    repeat_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    skip_special_tokens: bool | None = None
    stop: str | list[str] | None = None
    stop_regex: str | list[str] | None = None
    stop_token_ids: list[SmallInt] | None = None
    thinking_budget: SmallInt | None = None
    thinking_token_budget: SmallInt | None = None
    timeout: Timeout | None = None
    top_k: SmallInt | None = None

    refused: ClassVar[Mapping[str, Refusal]] = {
        **REFUSALS,
        **_OF_CONVERSATIONS,
        **{name: REFUSALS[name]._replace(use=("text.format",)) for name in GRAMMAR_FIELDS},
        "format": renamed("text.format", neutral=("",)),
        "include_reasoning": absent(True, why="leave the reasoning items of the reply unread"),
        "logprobs": renamed("top_logprobs", neutral=(False, 0)),
        "prompt_logprobs": absent(False, why="/v1/chat/completions takes it"),
        "return_token_ids": absent(False, why="/v1/chat/completions takes it"),
        "return_tokens_as_token_ids": absent(False, why="/v1/chat/completions takes it"),
        "stream_reasoning": absent(True, why="each piece of the reasoning is an event"),
        "truncate_prompt_tokens": of_prompt("use truncation"),
        "max_tool_calls": absent(why="this server runs no tools of its own"),
        "moderation": absent(False, {}, why="this server does not moderate"),
        "reasoning_effort": renamed("reasoning.effort"),
        "think": renamed("reasoning.effort"),
        "thinking": renamed("reasoning.effort"),
    }


class TextPart(msgspec.Struct, kw_only=True, tag_field="type", tag="output_text"):
    """The text of a message."""

    text: str
    annotations: list[dict[str, Any]] = []
    logprobs: list[TokenEntry] = []


class ReasoningPart(msgspec.Struct, kw_only=True, tag_field="type", tag="reasoning_text"):
    """The text of the reasoning."""

    text: str


class ReasoningItem(msgspec.Struct, kw_only=True, tag_field="type", tag="reasoning"):
    """The model's reasoning before an answer or a call."""

    id: str
    summary: list[dict[str, Any]] = []
    content: list[ReasoningPart]
    status: str


class MessageItem(msgspec.Struct, kw_only=True, tag_field="type", tag="message"):
    """A message of the model."""

    id: str
    status: str
    role: str = "assistant"
    content: list[TextPart]


class FunctionCallItem(msgspec.Struct, kw_only=True, tag_field="type", tag="function_call"):
    """A function call of the model."""

    id: str
    status: str
    call_id: str
    name: str
    arguments: str


OutputItem = ReasoningItem | MessageItem | FunctionCallItem


class InputTokensDetails(msgspec.Struct, kw_only=True):
    """Breakdown of the prompt tokens. `cache_write_tokens` is 0, because caching costs nothing extra here."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, kw_only=True):
    """Breakdown of the output tokens."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, kw_only=True):
    """Token counts of a response."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(msgspec.Struct, kw_only=True):
    """Why a response failed.

    `code` is "invalid_prompt" if the engine refused the request, else "server_error".
    """

    code: str
    message: str


class IncompleteDetails(msgspec.Struct, kw_only=True):
    """Why a response ended early."""

    reason: str = "max_output_tokens"


class Response(msgspec.Struct, kw_only=True):
    """The response object, complete or in progress."""

    id: str
    object: str = "response"
    created_at: int
    status: Status
    background: bool = False
    completed_at: int | None = None
    conversation: None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: None = None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem] = []
    parallel_tool_calls: bool
    previous_response_id: str | None = None
    prompt: None = None
    prompt_cache_key: str | None = None
    reasoning: dict[str, Any]
    safety_identifier: str | None = None
    service_tier: str = "default"
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int = 0
    top_p: float
    truncation: str = "disabled"
    usage: ResponseUsage | UnsetType = UNSET
    user: str | UnsetType = UNSET


class StreamEvent(msgspec.Struct, kw_only=True):
    """The fields that every event of a stream has. The others depend on its type, as in OpenAI's API."""

    type: str
    sequence_number: int


class DeletedResponse(msgspec.Struct, kw_only=True):
    """Reply to the deletion of a response."""

    id: str
    object: str = "response"
    deleted: bool = True


class ItemList(msgspec.Struct, kw_only=True):
    """A page of input items. `first_id` and `last_id` are null if it is empty."""

    object: str = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputTokens(msgspec.Struct, kw_only=True):
    """Reply of POST /v1/responses/input_tokens: the number of prompt tokens."""

    object: str = "response.input_tokens"
    input_tokens: Annotated[int, msgspec.Meta(ge=1)]
