"""Tool calls as JSON objects of Llama 3."""

from __future__ import annotations

import pytest

from llmfw.plugins.parsers_families.llama3_json import Llama3JsonToolParser

from .parsing import TOOLS, Parsed, parse

ROME = '{"name": "get_weather", "parameters": {"city": "Rome", "days": 3}}'
ROME_CALL = ("get_weather", '{"city": "Rome", "days": 3}')

SAMPLES: dict[str, Parsed] = {
    "It is sunny in Rome.": ("It is sunny in Rome.", []),
    ROME: ("", [ROME_CALL]),
    f"<|python_tag|>{ROME}": ("", [ROME_CALL]),
    f"I will look it up.\n\n<|python_tag|>{ROME}": ("I will look it up.", [ROME_CALL]),
    f"I will look it up: {ROME} Wait.": ("I will look it up:Wait.", [ROME_CALL]),
    f'<|python_tag|>{ROME}; {{"name": "now", "parameters": {{}}}}': ("", [ROME_CALL, ("now", "{}")]),
    f'{ROME};{{"name": "fly", "parameters": {{}}}}': (';{"name": "fly", "parameters": {}}', [ROME_CALL]),
    '{"type": "function", "name": "add", "parameters": {"a": "1;2", "b": {"c": "}\\u00e9"}}}': (
        "",
        [("add", '{"a": "1;2", "b": {"c": "}\\u00e9"}}')],
    ),
    '{"name": "fly", "parameters": {"to": "Rome"}}': ('{"name": "fly", "parameters": {"to": "Rome"}}', []),
    '{"name": "add" "parameters": {}}': ('{"name": "add" "parameters": {}}', []),
    "<|python_tag|>import math\nprint(math.pi)": ("<|python_tag|>import math\nprint(math.pi)", []),
    '{"a": {"name": "Bob"}}': ('{"a": {"name": "Bob"}}', []),
    '{"name": "get_weather", "parameters": {"city": "Ro': ("", [("get_weather", '{"city": "Ro')]),
    '{"name": "get_weather", "para': ('{"name": "get_weather", "para', []),
}


@pytest.mark.parametrize("text", SAMPLES)
def test_a_text_is_split_into_content_and_calls(text: str) -> None:
    assert parse(Llama3JsonToolParser(TOOLS), text) == SAMPLES[text]
