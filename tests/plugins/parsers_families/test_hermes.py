"""Tool calls between <tool_call> and </tool_call>."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfw.core.interfaces.parsers import ToolCallDelta
from llmfw.core.testing.parsing import cut
from llmfw.plugins.parsers_families.hermes import HermesToolParser

from .parsing import TOOLS, Parsed, call, first_calls, parse

WEATHER = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": [1, "}"]}}\n</tool_call>'
)
PARIS = ("get_weather", '{"city": "Paris", "days": [1, "}"]}')
NOW = '<tool_call>{"name": "now"}</tool_call>'
UNKNOWN = '<tool_call>{"name": "h", "arguments": {}}</tool_call>'

SAMPLES: dict[str, Parsed] = {
    f"Let me see.\n{WEATHER}\n{NOW}": ("Let me see.", [PARIS, ("now", "{}")]),
    f"{WEATHER}\n\nDone.": ("Done.", [PARIS]),
    f"{NOW}\n{UNKNOWN}\n{WEATHER}": (UNKNOWN, [("now", "{}"), PARIS]),
    '<tool_call>\n{"arguments": {"a": 1.5, "b": -2e3}, "name": "add"}\n</tool_call>': (
        "",
        [call("add", '{"a": 1.5, "b": -2e3}')],
    ),
    '<tool_call>{"name": "run", "arguments": {"code": "print(\\"</tool_call>\\")\\n", "env": {"é": {"}": []}}}}\n': (
        "",
        [call("run", '{"code": "print(\\"</tool_call>\\")\\n", "env": {"é": {"}": []}}}')],
    ),
    '<tool_call>{"id": "1", "name": "add", "arguments": {}, "type": "function"} </tool_call>': (
        "",
        [("add", "{}")],
    ),
    '<tool_call>{"name": "add", "arguments": {"a": 1}\n</tool_call>ok': ("ok", [("add", '{"a": 1}')]),
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par': (
        "",
        [("get_weather", '{"city": "Par')],
    ),
    f"{NOW}</tool_c": ("</tool_c", [("now", "{}")]),
    NOW.removesuffix("_call>"): ("", [("now", "{}")]),
}
NO_CALLS = [
    "no call\n",
    "a <tool_call> {not json} </tool_call> b",
    UNKNOWN,
    '<tool_call>{"name": "add", "arguments": [1]}</tool_call>',
    '<tool_call>{"name": "add", "arguments": "[1]"}</tool_call>',
    '<tool_call>{"arguments": {}}</tool_call>',
    '\n<tool_call>{"name": "add", "argum',
    "ends with <tool_c",
    "<tool_call>[1, 2]</tool_call>",
    '<tool_call>{"name": "add", "arguments": "\\ud800"}</tool_call>',
]
SAMPLES |= {text: (text, []) for text in NO_CALLS}

pieces = st.sampled_from(
    [WEATHER, NOW, UNKNOWN, "<tool_call>", "</tool_call>", "<tool", "\n", " ", "a", "{}"]
)


@pytest.mark.parametrize("text", SAMPLES)
def test_a_text_is_split_into_content_and_calls(text: str) -> None:
    assert parse(HermesToolParser(TOOLS), text) == SAMPLES[text]


@settings(deadline=None)
@given(st.lists(pieces, max_size=8).map("".join), st.lists(st.integers(0, 300)))
def test_chunking_does_not_change_the_result(text: str, places: list[int]) -> None:
    assert parse(HermesToolParser(TOOLS), *cut(text, places)) == parse(HermesToolParser(TOOLS), text)


def test_the_last_call_s_end_is_optional() -> None:
    assert parse(HermesToolParser(TOOLS), NOW.removesuffix("</tool_call>")) == ("", [("now", "{}")])


def test_arguments_may_be_a_json_string() -> None:
    text = json.dumps({"name": "add", "arguments": json.dumps({"a": 1})})
    assert parse(HermesToolParser(TOOLS), f"<tool_call>{text}</tool_call>") == ("", [("add", '{"a": 1}')])


def test_arguments_are_streamed() -> None:
    parser = HermesToolParser(TOOLS)
    assert first_calls(parser, '<tool_call>{"name": "add", "arguments": ') == []
    assert first_calls(parser, '{"a"') == [ToolCallDelta(0, "add"), ToolCallDelta(0, None, '{"a"')]
    assert first_calls(parser, ": 1") == [ToolCallDelta(0, None, ": 1")]
    assert first_calls(parser, "}}\n</tool") == [ToolCallDelta(0, None, "}")]


def test_invalid_arguments_are_returned_verbatim() -> None:
    text = '<tool_call>\n{"name": "add", "arguments": {"a": 1,}}\n</tool_call>ok'
    assert parse(HermesToolParser(TOOLS), text) == ("ok", [("add", '{"a": 1,}')])
