"""Tool calls of DeepSeek's models."""

from __future__ import annotations

import pytest

from llmfw.plugins.parsers_families.deepseek import DeepSeekV3ToolParser, DeepSeekV31ToolParser

from .parsing import TOOLS, Parsed, parse

BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, CALL_END, SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"


def v3(name: str, arguments: str) -> str:
    return f"{CALL}function{SEP}{name}\n```json\n{arguments}\n```{CALL_END}"


def v31(name: str, arguments: str) -> str:
    return f"{CALL}{name}{SEP}{arguments}{CALL_END}"


ROME = '{"city": "Rome"}'
BROKEN = '{"a": 1, }'
HARD = '{"code": "print(\\"```\\")\\n}", "env": {"城": {"a": [1, {}]}}}'


def shared(write: object) -> dict[str, Parsed]:
    """Return the samples that are alike in both forms."""
    assert callable(write)
    rome, now, fly = write("get_weather", ROME), write("now", "{}"), write("fly", "{}")
    return {
        "It is sunny in Rome.": ("It is sunny in Rome.", []),
        f"{BEGIN}{rome}{END}": ("", [("get_weather", ROME)]),
        f"I will look.\n\n{BEGIN}{rome}\n{now}{END}": (
            "I will look.",
            [("get_weather", ROME), ("now", "{}")],
        ),
        f"{BEGIN}{rome}{now}{END}\nDone": ("Done", [("get_weather", ROME), ("now", "{}")]),
        f"{rome}": ("", [("get_weather", ROME)]),
        f"{BEGIN}{write('run', HARD)}{END}": ("", [("run", HARD)]),
        f"{BEGIN}{fly}{END}": (f"{BEGIN}{fly}{END}", []),
        f"{BEGIN}{rome}{fly}{END}": (f"{fly}{END}", [("get_weather", ROME)]),
        f"{BEGIN}{write('add', '[1]')}{END}": (f"{BEGIN}{write('add', '[1]')}{END}", []),
        f"{BEGIN}{rome.removesuffix(CALL_END)}": ("", [("get_weather", ROME)]),
        f"{BEGIN}{rome[: rome.index('Rome') + 2]}": ("", [("get_weather", '{"city": "Ro')]),
        f"{BEGIN}{CALL}": (f"{BEGIN}{CALL}", []),
        f"{BEGIN}{write('add', BROKEN)}{END}": ("", [("add", BROKEN)]),
    }


V3_SAMPLES = shared(v3) | {
    f"{BEGIN}{v31('now', '{}')}{END}": (f"{BEGIN}{v31('now', '{}')}{END}", []),
    f"{BEGIN}{CALL}function{SEP}now\n```json\n{{}}\n{CALL_END}{END}": ("", [("now", "{}")]),
}
V31_SAMPLES = shared(v31) | {f"{CALL}now{SEP}": (f"{CALL}now{SEP}", [])}


@pytest.mark.parametrize("text", V3_SAMPLES)
def test_calls_in_fenced_blocks_are_parsed(text: str) -> None:
    assert parse(DeepSeekV3ToolParser(TOOLS), text) == V3_SAMPLES[text]


@pytest.mark.parametrize("text", V31_SAMPLES)
def test_calls_as_bare_json_are_parsed(text: str) -> None:
    assert parse(DeepSeekV31ToolParser(TOOLS), text) == V31_SAMPLES[text]
