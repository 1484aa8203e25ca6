"""Combines structured output and tools into one grammar, and chooses the parser that reads the tool calls."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llmfw.api.text.structured import Format, Structure, format_of, tag_spec
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec
from llmfw.core.interfaces.parsers import CallFormat, MessageMarks, ToolParser

from .tool_choice import Tool, ToolUse, calls_only, text_and_calls, with_prefix

ParserClass = type[ToolParser]


class AnswerForm(msgspec.Struct, frozen=True, kw_only=True):
    """The grammar of an answer, and the parser of its tool calls.

    Attributes:
        use: the request's use of tools.
        grammar: grammar that the engine enforces; None: any text.
        checks: grammars to check before the request is sent, each with the request field that set it. The
            last one is `grammar`, if there is a grammar.
        tools: tools to pass to the template.
        tool_parser: parser of the tool calls; None: the answer has no calls.
    """

    use: ToolUse
    grammar: GrammarSpec | None = None
    checks: Sequence[Structure] = ()
    tools: Sequence[Tool] = ()
    tool_parser: ParserClass | None = None


def answer_form(
    use: ToolUse,
    structure: Structure | None,
    parser: ParserClass | None,
    json_parser: ParserClass | None,
    messages: MessageMarks | None = None,
) -> AnswerForm:
    """Return the form of an answer.

    Args:
        use: the request's use of tools.
        structure: the request's structured output, or None.
        parser: parser of calls in the model's own format, or None.
        json_parser: parser of calls in the format of a bare JSON array, or None. It is used for required
            calls if no grammar can describe the model's own format.
        messages: markers that start a text message and a message with calls; None for models that write no
            such markers.

    Raises:
        RequestError: no parser can read the calls, or no grammar can describe them.
    """
    if use.mode == "none":
        checks = [structure] if structure else []
        return AnswerForm(use=use, grammar=structure.spec if structure else None, checks=checks)
    if use.must_call:
        return _calls_form(use, structure, parser, json_parser, messages)
    if parser is None:
        raise RequestError(
            "tools need a tool parser, and this model has none: start the server with --tool-parser",
            param="tools",
            code="unsupported_parameter",
        )
    return _free_form(use, structure, parser, messages)


def _calls_form(
    use: ToolUse,
    structure: Structure | None,
    parser: ParserClass | None,
    json_parser: ParserClass | None,
    messages: MessageMarks | None,
) -> AnswerForm:
    """Return the form of an answer that consists of calls only.

    Such an answer has no content, so `structure` is checked but not applied.
    """
    for reader in (parser, json_parser):
        if reader is not None and reader.call_format is not None:
            form = calls_only(use, reader.call_format)
            if messages is not None:  # a model writes a bare JSON array as a text message
                form = with_prefix(messages.calls if reader is parser else messages.text, form)
            spec = tag_spec(form)
            return AnswerForm(
                use=use,
                grammar=spec,
                checks=[*([structure] if structure else []), Structure("tools", spec)],
                tools=use.defined,
                tool_parser=reader,
            )
    raise RequestError(
        "tool_choice asks for calls, and no tool parser of this server has a format that a grammar can enforce; "
        "choose 'auto'",
        param="tool_choice",
        code="unsupported_parameter",
    )


def _free_form(
    use: ToolUse, structure: Structure | None, parser: ParserClass, messages: MessageMarks | None
) -> AnswerForm:
    """Return the form of an answer that may be text, or calls, or both."""
    calls = parser.call_format
    if structure is not None:
        held = _held(calls, structure.param, "together with tools")
        spec = tag_spec(_either(format_of(structure.spec), calls_only(use, held), messages))
        checks = [structure, Structure("tools", spec)]
        return AnswerForm(use=use, grammar=spec, checks=checks, tools=use.defined, tool_parser=parser)
    if use.strict is not None:
        calls = _held(calls, f"tools[{use.strict}].function.strict", "with tool_choice 'auto'")
    if calls is not None and (use.strict is not None or use.is_restricted):
        if messages is None:
            spec = tag_spec(text_and_calls(use, calls))
        else:
            spec = tag_spec(_either({"type": "any_text"}, calls_only(use, calls), messages))
        checks = [Structure("tools", spec)]
        return AnswerForm(use=use, grammar=spec, checks=checks, tools=use.defined, tool_parser=parser)
    # Without a grammar, hiding a tool from the model keeps the model from calling it.
    return AnswerForm(use=use, tools=use.callable, tool_parser=parser)


def _either(text: Format, calls: Format, messages: MessageMarks | None) -> Format:
    """Return the structural tag's format of an output that is either `text` or `calls`."""
    if messages is not None:
        text, calls = with_prefix(messages.text, text), with_prefix(messages.calls, calls)
    return {"type": "or", "elements": [text, calls]}


def _held(calls: CallFormat | None, param: str, where: str) -> CallFormat:
    if calls is None:
        raise RequestError(
            f"{param} cannot be enforced {where}: no grammar can describe this model's tool calls",
            param=param,
            code="unsupported_parameter",
        )
    return calls
