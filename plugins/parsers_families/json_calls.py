"""Tool calls as one JSON array or one object, and nothing else: the form that a grammar enforces if a family has no form
of its own with JSON arguments."""

from __future__ import annotations

from llmfw.core import CallFormat

from .calls import Steps, examples
from .json_call import JsonCallParser

OBJECT = '{"name": '


class JsonCallsToolParser(JsonCallParser):
    """Finds calls only at the start of the text. The text after them is content."""

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
