"""Tool calls in tags, one for each parameter."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfw.core.interfaces.parsers import ToolCallDelta
from llmfw.core.testing.parsing import cut
from llmfw.plugins.parsers_families.qwen3_coder import Qwen3CoderToolParser

from .parsing import TOOLS, Parsed, first_calls, parse

ROME = """<tool_call>
<function=get_weather>
<parameter=city>
Rome
</parameter>
<parameter=days>
3
</parameter>
</function>
</tool_call>"""
ROME_CALL = ("get_weather", '{"city": "Rome", "days": 3}')
NOW = "<tool_call>\n<function=now>\n</function>\n</tool_call>"
FLY = "<tool_call>\n<function=fly>\n<parameter=to>\nRome\n</parameter>\n</function>\n</tool_call>"


def run(key: str, value: str) -> str:
    return f"<function=run>\n<parameter={key}>\n{value}\n</parameter>\n</function>"


SAMPLES: dict[str, Parsed] = {
    "It is sunny.": ("It is sunny.", []),
    ROME: ("", [ROME_CALL]),
    f"I will look.\n\n{ROME}\n{NOW}\n": ("I will look.", [ROME_CALL, ("now", "{}")]),
    f"{NOW}{FLY}": (FLY, [("now", "{}")]),
    run("code", 'if a < b:\n    print("é}\\n")\n'): (
        "",
        [("run", json.dumps({"code": 'if a < b:\n    print("é}\\n")\n'}, ensure_ascii=False))],
    ),
    run("env", '{"A": {"b": [1, "</x>"]}}'): ("", [("run", '{"env": {"A": {"b": [1, "</x>"]}}}')]),
    run("env", "{'A': True}"): ("", [("run", '{"env": {"A": true}}')]),
    run("dry", "True"): ("", [("run", '{"dry": true}')]),
    run("args", "not a list"): ("", [("run", '{"args": "not a list"}')]),
    run("code", "123"): ("", [("run", '{"code": "123"}')]),
    "<tool_call><function=add><parameter=a>1.50</parameter><parameter=b>x</parameter></function></tool_call>": (
        "",
        [("add", '{"a": 1.50, "b": "x"}')],
    ),
    "<function=get_weather>\n<parameter=city>\nRome\n<parameter=days>\n3\n</function>\n</tool_call>": (
        "",
        [ROME_CALL],
    ),
    FLY: (FLY, []),
    "<tool_call>\n<function=get_weather\n": ("<tool_call>\n<function=get_weather\n", []),
    ROME[: ROME.index("me\n")]: ("", [("get_weather", '{"city": "Ro')]),
    ROME[: ROME.index("3") + 1]: ("", [("get_weather", '{"city": "Rome"')]),
    ROME[: ROME.index("<parameter=days") + 5]: ("", [("get_weather", '{"city": "Rome"')]),
    ROME[: ROME.index("</tool_call>")]: ("", [ROME_CALL]),
}


@pytest.mark.parametrize("text", SAMPLES)
def test_a_text_is_split_into_content_and_calls(text: str) -> None:
    assert parse(Qwen3CoderToolParser(TOOLS), text) == SAMPLES[text]


@settings(deadline=None)
@given(st.text(st.sampled_from('a\n <>"\\é🎉{}/')), st.lists(st.integers(0, 60)))
def test_string_arguments_are_returned_verbatim(value: str, places: list[int]) -> None:
    content, [(name, arguments)] = parse(Qwen3CoderToolParser(TOOLS), *cut(run("code", value), places))
    assert (content, name, json.loads(arguments)) == ("", "run", {"code": value})


def test_string_arguments_are_streamed() -> None:
    parser = Qwen3CoderToolParser(TOOLS)
    begun = first_calls(parser, "<function=run>\n<parameter=code>\nx = ")
    assert begun == [
        ToolCallDelta(0, "run"),
        ToolCallDelta(0, None, '{"code": "'),
        ToolCallDelta(0, None, "x = "),
    ]
    assert first_calls(parser, "1\n</par") == [ToolCallDelta(0, None, "1")]
