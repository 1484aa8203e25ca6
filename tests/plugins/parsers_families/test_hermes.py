"""Tool calls between <tool_call> and </tool_call>."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.parsers import ContentDelta, ToolCallDelta
from llmfw.plugins.parsers_families.hermes import HermesToolParser

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
F = '<tool_call>\n{"name": "f", "arguments": {"x": [1, "}"]}}\n</tool_call>'
G = '<tool_call>{"name": "g"}</tool_call>'
UNKNOWN = '<tool_call>{"name": "h", "arguments": {}}</tool_call>'
pieces = st.sampled_from([F, G, UNKNOWN, "<tool_call>", "</tool_call>", "<tool", "\n", " ", "a", "{}"])


def parse(*texts: str) -> tuple[str, list[tuple[str | None, str]]]:
    """Return content and calls."""
    parser = HermesToolParser(TOOLS)
    deltas = [delta for text in texts for delta in parser.feed(text)] + list(parser.finish())
    calls = [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
    assert [call.index for call in calls] == list(range(len(calls)))
    content = "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
    return content, [(call.name, call.arguments) for call in calls]


@given(st.lists(pieces, max_size=8).map("".join), st.lists(st.integers(0, 300)))
def test_however_a_text_is_cut_the_result_is_the_same(text: str, places: list[int]) -> None:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    assert parse(*(text[a:b] for a, b in itertools.pairwise(edges))) == parse(text)


def test_calls_are_found_with_their_arguments_as_the_model_wrote_them() -> None:
    content, calls = parse(f"Let me see.\n{F}\n{G}")
    assert content == "Let me see."
    assert calls == [("f", '{"x": [1, "}"]}'), ("g", "{}")]


@pytest.mark.parametrize(
    "text",
    [
        "no call\n",
        "a <tool_call> {not json} </tool_call> b",
        UNKNOWN,
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "f", "arguments": "[1]"}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '\n<tool_call>{"name": "f", "argum',
        "ends with <tool_c",
    ],
)
def test_text_that_is_no_valid_call_comes_back(text: str) -> None:
    assert parse(text) == (text, [])


def test_the_last_call_may_lack_its_end() -> None:
    assert parse(G.removesuffix("</tool_call>")) == ("", [("g", "{}")])


def test_arguments_may_be_a_string_that_holds_an_object() -> None:
    call = json.dumps({"name": "f", "arguments": json.dumps({"x": 1})})
    assert parse(f"<tool_call>{call}</tool_call>") == ("", [("f", '{"x": 1}')])


def test_text_after_a_call_is_content() -> None:
    assert parse(f"{G}\n\nDone.") == ("Done.", [("g", "{}")])
