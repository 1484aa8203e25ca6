"""Converts the result of a generation to Anthropic's message: blocks, stop reason, token counts."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from llmfw.api.schemas.anthropic import (
    Block,
    MessageUsage,
    OutputTokensDetails,
    Stop,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)
from llmfw.api.text.generation import Generation
from llmfw.api.text.text_stream import Delta
from llmfw.api.text.usage import usage_of
from llmfw.core.interfaces.parsers import ContentDelta, ReasoningDelta, ToolCallDelta


def message_id(generation: Generation) -> str:
    """Return the message id of a generation: the generation's id with the prefix "msg_"."""
    return f"msg_{generation.id.partition('-')[2]}"


def begins_block(delta: Delta, before: Delta | None) -> bool:
    """Return whether a delta starts a new block, given the delta before it."""
    if isinstance(delta, ToolCallDelta) and isinstance(before, ToolCallDelta):
        return delta.index != before.index
    return type(delta) is not type(before)


def new_block(delta: Delta) -> Block:
    """Return the empty block that a delta starts."""
    if isinstance(delta, ContentDelta):
        return TextBlock("")
    if isinstance(delta, ReasoningDelta):
        return ThinkingBlock("")
    return ToolUseBlock(f"toolu_{uuid.uuid4().hex[:24]}", delta.name or "", {})


def blocks_of(deltas: Sequence[Delta]) -> list[Block]:
    """Join deltas into blocks. A call that was cut off is left out, because its input is incomplete."""
    found: list[tuple[Block, str]] = []
    before = None
    for delta in deltas:
        if begins_block(delta, before):
            found.append((new_block(delta), ""))
        block, text = found[-1]
        found[-1] = (block, text + (delta.arguments if isinstance(delta, ToolCallDelta) else delta.text))
        before = delta
    return [block for block, text in found if _fill(block, text)]


def stop_of(generation: Generation, *, called: bool) -> Stop:
    """Return why a generation ended.

    Args:
        called: whether the generation contains a tool call.
    """
    text = generation.choices[0].text
    if text.finish_reason == "length":
        return Stop("max_tokens", None)
    if called:
        return Stop("tool_use", None)
    if isinstance(text.stopped_by, str):
        return Stop("stop_sequence", text.stopped_by)
    return Stop("end_turn", None)


def message_usage(generation: Generation) -> MessageUsage:
    """Return the token counts so far, as Anthropic reports them."""
    usage = usage_of(generation)
    cached = usage.prompt_tokens_details.cached_tokens
    return MessageUsage(
        input_tokens=usage.prompt_tokens - cached,
        cache_read_input_tokens=cached,
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(usage.completion_tokens_details.reasoning_tokens),
    )


def _fill(block: Block, text: str) -> bool:
    """Set a block's text; return False if the text is an incomplete tool input."""
    if isinstance(block, TextBlock):
        block.text = text
    elif isinstance(block, ThinkingBlock):
        block.thinking = text
    else:
        try:
            block.input = msgspec.json.decode(text or "{}", type=dict)
        except msgspec.DecodeError:
            return False
    return True
