"""Anthropic's Messages API: request, reply, and the events of a stream.

The objects inside a request are left as they are: `anthropic.request` reads them, and says what it did not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from .common import Body, SmallInt
from .refusals import PROMPT_REFUSALS, REFUSALS, Refusal, of_prompt, renamed

_ITS_OWN: Mapping[str, Refusal] = {
    "container": of_prompt("this server runs no tools itself"),
    "context_management": of_prompt("this server leaves the messages as they are", {}),
    "mcp_servers": of_prompt("this server runs no tools itself", []),
    "output_format": renamed("output_config.format"),
}


class CountTokensRequest(Body, kw_only=True):
    """Body of POST /v1/messages/count_tokens: what a prompt is made of."""

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
    """What is known of the new tokens."""

    thinking_tokens: int


class MessageUsage(msgspec.Struct, kw_only=True):
    """Token counts. The prompt's are `input_tokens` and those that came from the prefix cache, together."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputTokensDetails


class TextBlock(msgspec.Struct, tag="text"):
    """A part of the answer that is text."""

    text: str


class ThinkingBlock(msgspec.Struct, tag="thinking"):
    """A part that is thinking. It is not signed: the signature is empty."""

    thinking: str
    signature: str = ""


class ToolUseBlock(msgspec.Struct, tag="tool_use"):
    """A call of a tool."""

    id: str
    name: str
    input: dict[str, Any]


Block = TextBlock | ThinkingBlock | ToolUseBlock


class Message(msgspec.Struct, kw_only=True, tag="message"):
    """The whole reply; in a stream's first event it is empty."""

    id: str
    role: str = "assistant"
    model: str
    content: list[Block]
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: MessageUsage


class TextDelta(msgspec.Struct, tag="text_delta"):
    """More of a text block."""

    text: str


class ThinkingDelta(msgspec.Struct, tag="thinking_delta"):
    """More of a thinking block."""

    thinking: str


class InputJsonDelta(msgspec.Struct, tag="input_json_delta"):
    """More of the JSON text of a tool's input."""

    partial_json: str


class MessageStart(msgspec.Struct, tag="message_start"):
    """The first event."""

    message: Message


class ContentBlockStart(msgspec.Struct, tag="content_block_start"):
    """A block begins, empty."""

    index: int
    content_block: Block


class ContentBlockDelta(msgspec.Struct, tag="content_block_delta"):
    """A block grows."""

    index: int
    delta: TextDelta | ThinkingDelta | InputJsonDelta


class ContentBlockStop(msgspec.Struct, tag="content_block_stop"):
    """A block is complete."""

    index: int


class Stop(msgspec.Struct):
    """Why the message ended."""

    stop_reason: str
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, tag="message_delta"):
    """What is known at the end."""

    delta: Stop
    usage: MessageUsage


class MessageStop(msgspec.Struct, tag="message_stop"):
    """The last event."""


class AnthropicErrorDetail(msgspec.Struct):
    """What is wrong. Anthropic's own errors have no `param`; it is left out where there is none."""

    type: str
    message: str
    param: str | UnsetType = UNSET


class AnthropicError(msgspec.Struct, tag="error"):
    """The body of a reply with a status of 400 or more, and the event for an error in a stream."""

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
