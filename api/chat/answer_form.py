"""What an answer has to be, of structured output and tools together, and which parser reads its calls.

Knows the formats of both (`structured`, `tool_choice`), nothing of the messages and of the model's text.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llmfw.api.text.structured import Format, Structure, format_of, tag_spec
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec
from llmfw.core.interfaces.parsers import CallFormat, MessageMarks, ToolParser

from .tool_choice import Tool, ToolUse, after, calls_only, text_and_calls

ParserClass = type[ToolParser]


class AnswerForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form of an answer.

    Attributes:
        grammar: what the engine holds it to, None: anything.
        checks: what has to be checked before, each under the field that asked for it; the last one is of `grammar`.
        tools: what the template shows.
        tool_parser: reads the calls; None: there can be none.
        use: what the request says of tools.
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
        use: of tools.
        structure: asked for beside them.
        parser: of the model's own calls, or None.
        json_parser: of calls that are a bare JSON array: the form of calls that have to be made where a grammar
            cannot hold to the model's own.
        messages: what begins texts and calls after the thinking, where they are messages of their own.

    Raises:
        RequestError: no parser can read the calls, or no grammar can hold to them.
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
    """Return the form of an answer that is calls. A structure is of content, of which there is none: it is checked."""
    for reader in (parser, json_parser):
        if reader is not None and reader.call_format is not None:
            form = calls_only(use, reader.call_format)
            if messages is not None:  # a bare JSON array is a text of the model's
                form = after(messages.calls if reader is parser else messages.text, form)
            spec = tag_spec(form)
            return AnswerForm(
                use=use,
                grammar=spec,
                checks=[*([structure] if structure else []), Structure("tools", spec)],
                tools=use.defined,
                tool_parser=reader,
            )
    raise RequestError(
        "tool_choice asks for calls, and no tool parser of this server has calls that a grammar can hold to; "
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
    # Without a grammar the model is kept from calling a tool by not being shown it.
    return AnswerForm(use=use, tools=use.callable, tool_parser=parser)


def _either(text: Format, calls: Format, messages: MessageMarks | None) -> Format:
    """Return the format of an output that is either of two."""
    if messages is not None:
        text, calls = after(messages.text, text), after(messages.calls, calls)
    return {"type": "or", "elements": [text, calls]}


def _held(calls: CallFormat | None, param: str, where: str) -> CallFormat:
    if calls is None:
        raise RequestError(
            f"{param} cannot be held to {where}: no grammar can describe this model's tool calls",
            param=param,
            code="unsupported_parameter",
        )
    return calls
