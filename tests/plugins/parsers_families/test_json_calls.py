"""Tool calls as one JSON array or object."""

from __future__ import annotations

import pytest

from llmfw.plugins.parsers_families.json_calls import JsonCallsToolParser

from .parsing import TOOLS, Parsed, parse

ROME = '{"name": "get_weather", "parameters": {"city": "Rome"}}'
ADD = '{"name": "add", "arguments": {"a": 1, "b": [2, {"c": "]},"}]}}'
CALLS = [("get_weather", '{"city": "Rome"}'), ("add", '{"a": 1, "b": [2, {"c": "]},"}]}')]

SAMPLES: dict[str, Parsed] = {
    "Hello.": ("Hello.", []),
    f"[{ROME}]": ("", CALLS[:1]),
    ROME: ("", CALLS[:1]),
    f"\n[\n  {ROME},\n  {ADD}\n]\n": ("", CALLS),
    f"Calls: [{ROME}]": (f"Calls: [{ROME}]", []),
    f"[{ROME}, {ADD}": ("", CALLS),
    f'[{ROME}, {{"name": "fly", "arguments": {{}}}}]': (
        ', {"name": "fly", "arguments": {}}]',
        CALLS[:1],
    ),
    f"[{ROME}] That is all.": ("That is all.", CALLS[:1]),
    '[{"name": "fly", "arguments": {}}]': ('[{"name": "fly", "arguments": {}}]', []),
    "[1, 2, 3]": ("[1, 2, 3]", []),
    "[]": ("[]", []),
    '[{"name": "add", "arguments": {"a": 1,}}]': ("", [("add", '{"a": 1,}')]),
    '[{"name": "now", "arguments": "{}"}, {"name": "add", "arguments": {"a": ': (
        "",
        [("now", "{}"), ("add", '{"a": ')],
    ),
}


@pytest.mark.parametrize("text", SAMPLES)
def test_a_text_is_split_into_content_and_calls(text: str) -> None:
    assert parse(JsonCallsToolParser(TOOLS), text) == SAMPLES[text]
