"""Chat completions: request, reply, and the chunks of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from .common import GenerationRequest, SmallInt, Usage
from .logprobs import ChatLogprobs, NumTop
from .refusals import REFUSALS, Refusal, absent, of_prompt, renamed
from .token_fields import PromptLogprobs


class ChatRequest(GenerationRequest, kw_only=True):
    """Body of POST /v1/chat/completions."""

    messages: list[dict[str, Any]]
    max_completion_tokens: SmallInt | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    separate_reasoning: bool | None = None
    include_reasoning: bool | None = None
    stream_reasoning: bool | None = None
    thinking_budget: SmallInt | None = None
    thinking_token_budget: SmallInt | None = None
    enable_thinking: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    logprobs: bool | None = None
    top_logprobs: NumTop | None = None
    echo: bool | None = None

    refused: ClassVar[Mapping[str, Refusal]] = {
        **REFUSALS,
        "add_special_tokens": of_prompt("the template writes the special tokens", False),
        "audio": absent({}, why="this server answers with text only"),
        "modalities": absent([], ["text"], why="this server answers with text only"),
        "function_call": renamed("tool_choice"),
        "functions": renamed("tools", neutral=([],)),
        "moderation": absent(False, {}, why="this server does not moderate"),
        "prompt": renamed("messages"),
        "reasoning": renamed("reasoning_effort", neutral=({},)),
        "web_search_options": absent(why="this server does not search the web"),
    }


class FunctionCall(msgspec.Struct, omit_defaults=True):
    """A called function: its name, and its arguments as JSON text.

    In a stream, only the first piece has the name.
    """

    arguments: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


class ToolCall(msgspec.Struct):
    """A tool call of a reply."""

    id: str
    function: FunctionCall
    type: str = "function"


class ToolCallChunk(msgspec.Struct):
    """A piece of a tool call in a stream. Only the first piece has `id` and `type`."""

    index: int
    function: FunctionCall
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class ChatMessage(msgspec.Struct, kw_only=True):
    """The message of an answer.

    The reasoning is in `reasoning_content`, in `reasoning`, or in both, as `--reasoning-field` selects. If
    the answer has no reasoning, the field is null. If the server has no reasoning parser, the field is
    omitted.
    """

    role: str = "assistant"
    content: str | None = None
    refusal: None = None
    reasoning_content: str | UnsetType | None = UNSET
    reasoning: str | UnsetType | None = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, kw_only=True):
    """One choice of a reply."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str
    matched_stop: int | str | UnsetType | None = None
    stop_reason: int | str | UnsetType | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, kw_only=True):
    """Reply of POST /v1/chat/completions, unless it is streamed."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class ChatDelta(msgspec.Struct, kw_only=True):
    """The piece that a chunk adds to a choice's message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    refusal: UnsetType | None = UNSET
    reasoning_content: str | UnsetType | None = UNSET
    reasoning: str | UnsetType | None = UNSET
    tool_calls: list[ToolCallChunk] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, kw_only=True):
    """One choice in a chunk. Only a choice's last chunk has `matched_stop` and `stop_reason`."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    matched_stop: int | str | UnsetType | None = UNSET
    stop_reason: int | str | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(msgspec.Struct, kw_only=True):
    """One event of a stream.

    `usage` is null in all chunks except the last, or omitted if the client did not ask for it.
    """

    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
