"""The tool parser `json_calls`: tool calls as one JSON array or object, and nothing else.

Grammars enforce this format if the model family has no format of its own with JSON arguments.
"""

from __future__ import annotations

from llmfw.core import CallFormat

from .calls import Steps, examples
from .json_call import JsonCallParser

OBJECT = '{"name": '


class JsonCallsToolParser(JsonCallParser):
    """Reads `[{"name": …, "arguments": {…}}, …]` at the start of the text. The text after it is content."""

    conformance = examples(
        (
            '[{"name": "get_weather", "arguments": {"city": "Rome"}}, {"name": "now", "arguments": {}}]',
            [("get_weather", '{"city": "Rome"}'), ("now", "{}")],
            "",
        ),
    )

    call_format = CallFormat(
        begin=OBJECT + '"{name}", "arguments": ',
        end="}",
        trigger=OBJECT,
        between=", ",
        before="[",
        after="]",
    )
    starts = "[{"

    def read_calls(self) -> Steps[bool]:
        return (yield from self.read_json_calls())
