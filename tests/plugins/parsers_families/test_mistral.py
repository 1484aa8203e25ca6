"""Tool calls after [TOOL_CALLS]."""

from __future__ import annotations

import pytest

from llmfw.plugins.parsers_families.mistral import MistralToolParser

from .parsing import TOOLS, Parsed, parse

ROME = '[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}'
ROME_CALL = ("get_weather", '{"city": "Rome"}')

SAMPLES: dict[str, Parsed] = {
    "Bonjour [à tous].": ("Bonjour [à tous].", []),
    ROME: ("", [ROME_CALL]),
    '[TOOL_CALLS]get_weather{"city": "Rome"}': ("", [ROME_CALL]),
    '[TOOL_CALLS]get_weather[CALL_ID]aB3dE6gH9[ARGS]{"city": "Rome"}': ("", [ROME_CALL]),
    f'Let me see. {ROME}[TOOL_CALLS]add[ARGS]{{"a": 3.5, "b": 4}}': (
        "Let me see.",
        [ROME_CALL, ("add", '{"a": 3.5, "b": 4}')],
    ),
    '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Rome"}}]': ("", [ROME_CALL]),
    '[TOOL_CALLS][{"arguments": {"a": 1, "b": 2}, "name": "add"}, {"name": "now", "arguments": {}, "id": "x"}]ok': (
        "ok",
        [("add", '{"a": 1, "b": 2}'), ("now", "{}")],
    ),
    '[TOOL_CALLS]run[ARGS]{"code": "a = \\"}[TOOL_CALLS]\\"", "env": {"ключ": {"b": "\\u00e9"}}}': (
        "",
        [("run", '{"code": "a = \\"}[TOOL_CALLS]\\"", "env": {"ключ": {"b": "\\u00e9"}}}')],
    ),
    '[TOOL_CALLS]add[ARGS]{"a": 1, b}[TOOL_CALLS]now[ARGS]{}': ("", [("add", '{"a": 1, b}'), ("now", "{}")]),
    '[TOOL_CALLS]fly[ARGS]{"to": "Rome"}': ('[TOOL_CALLS]fly[ARGS]{"to": "Rome"}', []),
    '[TOOL_CALLS] [{"name": "fly", "arguments": {}}]': (
        '[TOOL_CALLS] [{"name": "fly", "arguments": {}}]',
        [],
    ),
    '[TOOL_CALLS]get_weather[ARGS]{"city": "Ro': ("", [("get_weather", '{"city": "Ro')]),
    "[TOOL_CALLS]get_weather[ARGS]": ("[TOOL_CALLS]get_weather[ARGS]", []),
    "[TOOL_CALLS]get_weather[AR": ("[TOOL_CALLS]get_weather[AR", []),
    "[TOOL_CALLS]add[ARGS][1]": ("[TOOL_CALLS]add[ARGS][1]", []),
}


@pytest.mark.parametrize("text", SAMPLES)
def test_a_text_is_split_into_content_and_calls(text: str) -> None:
    assert parse(MistralToolParser(TOOLS), text) == SAMPLES[text]
