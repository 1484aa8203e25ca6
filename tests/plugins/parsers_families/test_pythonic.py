"""Tool calls as a Python list of calls."""

from __future__ import annotations

import pytest

from llmfw.plugins.parsers_families.pythonic import PythonicToolParser

from .parsing import TOOLS, Parsed, parse

ROME = '[get_weather(city="Rome", days=3)]'
ROME_CALL = ("get_weather", '{"city": "Rome", "days": 3}')

SAMPLES: dict[str, Parsed] = {
    "It is sunny.": ("It is sunny.", []),
    ROME: ("", [ROME_CALL]),
    f"<|python_start|>{ROME}<|python_end|>": ("", [ROME_CALL]),
    f"I will look.\n<|python_start|>{ROME}<|python_end|>\nSo.": ("I will look.So.", [ROME_CALL]),
    "[get_weather(city='Rome', days=3), now(),\n add(a=-1.5, b=2e3)]": (
        "",
        [ROME_CALL, ("now", "{}"), ("add", '{"a": -1.5, "b": 2000.0}')],
    ),
    """[run(code="print('é)]')\\n", env={"A": [1, {"b": None}], 'c': {}}, dry=true, args=["]", False, null])]""": (
        "",
        [
            (
                "run",
                """{"code": "print('é)]')\\n", "env": {"A": [1, {"b": null}], "c": {}}, "dry": true, "args": ["]", false, null]}""",
            )
        ],
    ),
    '[run(code="""def f():\n    return "]" """)]': (
        "",
        [("run", '{"code": "def f():\\n    return \\"]\\" "}')],
    ),
    "[run(code=\"\", args=[]), run(code='')]": (
        "",
        [("run", '{"code": "", "args": []}'), ("run", '{"code": ""}')],
    ),
    '[run(code="\\ud800é")]': ("", [("run", '{"code": "\\ud800\\u00e9"}')]),
    '[run(code="\\d+")]': ("", [("run", '{"code": "\\\\d+"}')]),
    ROME.removesuffix("]"): ("", [ROME_CALL]),
    '[get_weather(city="Rome"), now(': ('[get_weather(city="Rome"), now(', []),
    '[get_weather(city="Ro': ('[get_weather(city="Ro', []),
    "[fly(to='Rome')]": ("[fly(to='Rome')]", []),
    "[now(), fly(to='Rome')]": ("[now(), fly(to='Rome')]", []),
    "[1] The first note.": ("[1] The first note.", []),
    "[add(1, 2)]": ("[add(1, 2)]", []),
    "[add(a=b)]": ("[add(a=b)]", []),
    "[add(a={1})]": ("[add(a={1})]", []),
    "[add(a=1e999)]": ("[add(a=1e999)]", []),
    "[add(**{'a': 1})]": ("[add(**{'a': 1})]", []),
    "[now() for x in y]": ("[now() for x in y]", []),
    "[now(]": ("[now(]", []),
    "<|python_start|>print(1)<|python_end|>": ("<|python_start|>print(1)<|python_end|>", []),
}


@pytest.mark.parametrize("text", SAMPLES)
def test_a_text_is_split_into_content_and_calls(text: str) -> None:
    assert parse(PythonicToolParser(TOOLS), text) == SAMPLES[text]
