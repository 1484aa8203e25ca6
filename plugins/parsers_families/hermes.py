"""The tool parser `hermes`: tool calls as JSON between <tool_call> and </tool_call>."""

from __future__ import annotations

from llmfw.core import CallFormat

from .calls import Steps, examples
from .json_call import JsonCallParser

OPEN = "<tool_call>"
CLOSE = "</tool_call>"


class HermesToolParser(JsonCallParser):
    """Reads `<tool_call>{"name": …, "arguments": {…}}</tool_call>` anywhere in the text."""

    conformance = examples(
        (
            'I look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>',
            [("get_weather", '{"city": "Rome"}')],
            "I look.",
        ),
        ('<tool_call>{"name": "now", "arguments": {}}</tool_call>', [("now", "{}")], ""),
    )

    call_format = CallFormat(
        begin=OPEN + '\n{"name": "{name}", "arguments": ', end="}\n" + CLOSE, trigger=OPEN
    )
    markers = (OPEN,)

    def read_calls(self) -> Steps[bool]:
        yield from self.reader.literal(OPEN)
        yield from self.reader.space()
        if not (yield from self.read_json_call(CLOSE)):
            return False
        yield from self.skip(CLOSE)
        return True
