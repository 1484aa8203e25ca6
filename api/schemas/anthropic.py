"""Anthropic's Messages API: request, reply, and the events of a stream.

Objects inside a request are decoded as plain dicts. `anthropic.request` checks them, and reports keys without
effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from .common import Body, SmallInt
from .refusals import PROMPT_REFUSALS, REFUSALS, Refusal, of_prompt, renamed

_ITS_OWN: Mapping[str, Refusal] = {
    "compaction": of_prompt("this server does not summarize conversations"),
    "container": of_prompt("this server runs no tools itself"),
    "context_management": of_prompt("this server leaves the messages as they are", {}),
    "mcp_servers": of_prompt("this server runs no tools itself", []),
    "output_format": renamed("output_config.format"),
    "thread": of_prompt("this server keeps no threads; send all messages, without thread"),
}


class CountTokensRequest(Body, kw_only=True):
    """Body of POST /v1/messages/count_tokens: the fields that make up the prompt."""

    model: str | None = None
    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None

    refused: ClassVar[Mapping[str, Refusal]] = {**PROMPT_REFUSALS, **_ITS_OWN}


class MessagesRequest(CountTokensRequest, kw_only=True):
    """Body of POST /v1/messages."""

    max_tokens: SmallInt
    stop_sequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_k: SmallInt | None = None
    top_p: float | None = None

    refused: ClassVar[Mapping[str, Refusal]] = {
        **REFUSALS,
        **_ITS_OWN,
        **{
            name: REFUSALS[name]._replace(use=("output_config.format",))
            for name in ("response_format", "format")
        },
    }


class TokenCount(msgspec.Struct):
    """Reply of POST /v1/messages/count_tokens."""

    input_tokens: int


class OutputTokensDetails(msgspec.Struct):
    """Breakdown of the output tokens."""

    thinking_tokens: int


class MessageUsage(msgspec.Struct, kw_only=True):
    """Token counts. The prompt has `input_tokens` + `cache_read_input_tokens` tokens."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputTokensDetails


class TextBlock(msgspec.Struct, tag="text"):
    """A block of the answer with text."""

    text: str


class ThinkingBlock(msgspec.Struct, tag="thinking"):
    """A block of the answer with thinking. It is not signed, so the signature is empty."""

    thinking: str
    signature: str = ""


class ToolUseBlock(msgspec.Struct, tag="tool_use"):
    """A block of the answer with a tool call."""

    id: str
    name: str
    input: dict[str, Any]


Block = TextBlock | ThinkingBlock | ToolUseBlock


class Message(msgspec.Struct, kw_only=True, tag="message"):
    """Reply of POST /v1/messages. In the first event of a stream, `content` is empty."""

    id: str
    role: str = "assistant"
    model: str
    content: list[Block]
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: MessageUsage


class TextDelta(msgspec.Struct, tag="text_delta"):
    """The next piece of a text block."""

    text: str


class ThinkingDelta(msgspec.Struct, tag="thinking_delta"):
    """The next piece of a thinking block."""

    thinking: str


class InputJsonDelta(msgspec.Struct, tag="input_json_delta"):
    """The next piece of a tool input's JSON text."""

    partial_json: str


class MessageStart(msgspec.Struct, tag="message_start"):
    """The first event of a stream."""

    message: Message


class ContentBlockStart(msgspec.Struct, tag="content_block_start"):
    """Event: an empty block starts."""

    index: int
    content_block: Block


class ContentBlockDelta(msgspec.Struct, tag="content_block_delta"):
    """Event: the next piece of a block."""

    index: int
    delta: TextDelta | ThinkingDelta | InputJsonDelta


class ContentBlockStop(msgspec.Struct, tag="content_block_stop"):
    """Event: a block is complete."""

    index: int


class Stop(msgspec.Struct):
    """Why the message ended."""

    stop_reason: str
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, tag="message_delta"):
    """Event at the end of a message: why it ended, and the token counts."""

    delta: Stop
    usage: MessageUsage


class MessageStop(msgspec.Struct, tag="message_stop"):
    """The last event of a stream."""


class UnsupportedThread(msgspec.Struct):
    """Details of the error for a request with `thread`, which this server does not support.

    On this error, Anthropic's SDKs send the whole conversation without `thread`.
    """

    unsupported: list[str]
    error_code: str = "thread_unsupported_request"


class AnthropicErrorDetail(msgspec.Struct):
    """The details of an error. `param` is llmfw's own addition, and is omitted if no field is wrong."""

    type: str
    message: str
    param: str | UnsetType = UNSET
    details: UnsupportedThread | UnsetType = UNSET


class AnthropicError(msgspec.Struct, tag="error"):
    """Body of a reply with a status of 400 or more, and the event for an error in a stream."""

    error: AnthropicErrorDetail


Event = (
    MessageStart
    | ContentBlockStart
    | ContentBlockDelta
    | ContentBlockStop
    | MessageDelta
    | MessageStop
    | AnthropicError
)
