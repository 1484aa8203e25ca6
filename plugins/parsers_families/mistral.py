"""Parsers for Mistral's models: tool calls after [TOOL_CALLS], and reasoning between [THINK] and [/THINK]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llmfw.core import CallFormat

from .calls import Steps, examples
from .json_call import JsonCallParser
from .qwen3_reasoning import Qwen3ReasoningParser

CALLS = "[TOOL_CALLS]"
CALL_ID = "[CALL_ID]"
ARGS = "[ARGS]"


class MistralToolParser(JsonCallParser):
    """Reads `[TOOL_CALLS][{"name": …, "arguments": …}]`, and the newer `[TOOL_CALLS]name[ARGS]{…}`.

    In the newer format, the marker precedes every call, and `[ARGS]` may be missing. If `[CALL_ID]` and an id
    follow the name, they are skipped. Grammars enforce the newer format.
    """

    conformance = examples(
        (
            'I look.[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}',
            [("get_weather", '{"city": "Rome"}')],
            "I look.",
        ),
        ('[TOOL_CALLS][{"name": "now", "arguments": {}}]', [("now", "{}")], ""),
    )

    call_format = CallFormat(begin=CALLS + "{name}" + ARGS, end="", trigger=CALLS, between="")
    needs_special_tokens = True
    markers = (CALLS,)

    def read_calls(self) -> Steps[bool]:
        reader = self.reader
        yield from reader.literal(CALLS)
        yield from reader.space()
        if reader.text.startswith(("[", "{"), reader.at):
            return (yield from self.read_json_calls(CALLS))
        name = yield from reader.word()
        yield from reader.space()
        if (yield from reader.literal(CALL_ID)):
            yield from reader.word()
            yield from reader.space()
        yield from reader.literal(ARGS)
        return (yield from self.read_named_call(name, CALLS))


class MistralReasoningParser(Qwen3ReasoningParser):
    """Splits off one block of reasoning between [THINK] and [/THINK], as Magistral writes it."""

    conformance: ClassVar[Mapping[str, Any]] = {
        "examples": [("[THINK]Hm.[/THINK]Oui.", "Hm.", "Oui."), ("Oui.", "", "Oui.")]
    }

    opening = "[THINK]"
    closing = "[/THINK]"
    needs_special_tokens = True
