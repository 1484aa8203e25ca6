"""The tool parser `llama3_json`: JSON objects, possibly after <|python_tag|> (Llama 3.1, 3.2 and 3.3)."""

from __future__ import annotations

from llmfw.core import CallFormat

from .calls import Steps, examples
from .json_call import JsonCallParser

TAG = "<|python_tag|>"
OBJECT = '{"name": '


class Llama3JsonToolParser(JsonCallParser):
    """Reads calls at the start of the text, after the tag, and wherever `{"name": ` occurs.

    `;` separates calls.
    """

    conformance = examples(
        (
            '{"name": "get_weather", "parameters": {"city": "Rome"}}',
            [("get_weather", '{"city": "Rome"}')],
            "",
        ),
        (
            'I look.<|python_tag|>{"name": "a", "parameters": {}}; {"name": "b", "parameters": {"x": 1}}',
            [("a", "{}"), ("b", '{"x": 1}')],
            "I look.",
        ),
    )

    call_format = CallFormat(begin=OBJECT + '"{name}", "parameters": ', end="}", trigger=OBJECT, between="; ")
    needs_special_tokens = True
    markers = (TAG, OBJECT)
    starts = "{"

    def read_calls(self) -> Steps[bool]:
        if (yield from self.reader.literal(TAG)):
            yield from self.reader.space()
        if not (yield from self.read_json_call(TAG)):
            return False
        while (yield from self.read_another(";", TAG)):
            pass
        return True
