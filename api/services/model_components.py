"""The components of the API process that depend on the model."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from llmfw.api.media.vision import ImagePrompts
from llmfw.api.text.grammar_check import GrammarChecker
from llmfw.api.text.request_fields import NO_FIELDS, RequestFields
from llmfw.core.interfaces.chat_template import ChatTemplate
from llmfw.core.interfaces.parsers import ReasoningParser, ToolParser
from llmfw.core.interfaces.tokenizer import Tokenizer


class ModelComponents(msgspec.Struct, frozen=True, kw_only=True):
    """The components of the API process that depend on the model.

    Attributes:
        tokenizer: the model's tokenizer.
        chat_template: template that renders messages as a prompt.
        reasoning_parser, tool_parser: parser classes, or None.
        json_tool_parser: parser of tool calls in the format of a bare JSON array. Every model can be made to
            use this format by a grammar.
        grammar_checker: checker for structured output; None: no structured output.
        sampling_defaults: SamplingParams field → the model's default for it.
        request_fields: active request fields of plugins.
        image_prompts: the model's image processor; None: the model reads text only.
    """

    tokenizer: Tokenizer
    chat_template: ChatTemplate
    reasoning_parser: type[ReasoningParser] | None = None
    tool_parser: type[ToolParser] | None = None
    json_tool_parser: type[ToolParser] | None = None
    grammar_checker: GrammarChecker | None = None
    sampling_defaults: Mapping[str, float] = {}
    request_fields: RequestFields = NO_FIELDS
    image_prompts: ImagePrompts | None = None
