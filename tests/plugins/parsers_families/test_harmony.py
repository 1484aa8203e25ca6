"""Channels of gpt-oss: reasoning, answers and tool calls."""

from __future__ import annotations

import pytest

from llmfw.core.interfaces.parsers import ReasoningDelta
from llmfw.core.testing.parsing import halves
from llmfw.plugins.parsers_families.harmony import GptOssReasoningParser, GptOssToolParser

from .parsing import TOOLS, Parsed, parse, split_reasoning

ROME = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}<|call|>'
ROME_CALL = ("get_weather", '{"city": "Rome"}')
HARD = '{"code": "print(\\"<|x|>}\\")", "env": {"é": {"a": []}}}'
FLY = "<|channel|>commentary to=functions.fly <|constrain|>json<|message|>{}<|call|>"
THOUGHT = "<|channel|>analysis<|message|>The user wants the weather.<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>It is sunny.<|return|>"

SAMPLES: dict[str, Parsed] = {
    "It is sunny.": ("It is sunny.", []),
    "to be or not": ("to be or not", []),
    ROME: ("", [ROME_CALL]),
    ROME.removesuffix("<|call|>"): ("", [ROME_CALL]),
    f"I will look.{ROME}": ("I will look.", [ROME_CALL]),
    f"{ROME}<|start|>assistant<|channel|>commentary to=functions.now<|message|>{{}}<|call|>": (
        "",
        [ROME_CALL, ("now", "{}")],
    ),
    f"<|start|>assistant{ROME}\nDone.": ("Done.", [ROME_CALL]),
    " to=functions.now<|channel|>commentary <|constrain|>json<|message|>{}": ("", [("now", "{}")]),
    "<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>": (
        "",
        [("now", "{}")],
    ),
    f"<|channel|>commentary to=functions.run<|message|>{HARD}<|call|>": ("", [("run", HARD)]),
    FLY: (FLY, []),
    f"{FLY}{ROME}": (FLY, [ROME_CALL]),
    '<|channel|>commentary to=functions.add<|message|>{"a": 1, b}<|call|>ok': (
        "ok",
        [("add", '{"a": 1, b}')],
    ),
    '<|channel|>commentary to=functions.get_weather<|message|>{"city": "Ro': (
        "",
        [("get_weather", '{"city": "Ro')],
    ),
    "<|channel|>commentary to=functions.get_wea": ("<|channel|>commentary to=functions.get_wea", []),
}

REASONING: dict[str, tuple[str, str]] = {
    "Sunny.": ("", "Sunny."),
    f"{THOUGHT}{FINAL}": ("The user wants the weather.", "It is sunny."),
    f"{THOUGHT}<|start|>assistant{ROME}": ("The user wants the weather.", f"<|start|>assistant{ROME}"),
    f"{THOUGHT}\n<|start|>assistant{THOUGHT}{FINAL}": (
        "The user wants the weather.\nThe user wants the weather.",
        "It is sunny.",
    ),
    f"<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant{ROME}": (
        "",
        f"I will look.<|start|>assistant{ROME}",
    ),
    "<|channel|>commentary<|message|>I will look.<|end|>" + FINAL: ("", "I will look.\nIt is sunny."),
    "<|channel|>analysis<|message|>Enough<|channel|>final<|message|>Yes": ("Enough", "Yes"),
    "<|channel|>analysis<|message|>a <b> <| c": ("a <b> <| c", ""),
    f"{THOUGHT}<|start|>assistant<|channel|>fin": ("The user wants the weather.", ""),
    "<|channel|>final<|end|>" + FINAL: ("", "It is sunny."),
    " to=functions.now<|channel|>commentary <|message|>{}<|call|>": (
        "",
        " to=functions.now<|channel|>commentary <|message|>{}<|call|>",
    ),
}


@pytest.mark.parametrize("text", SAMPLES)
def test_a_text_is_split_into_content_and_calls(text: str) -> None:
    assert parse(GptOssToolParser(TOOLS), text) == SAMPLES[text]


@pytest.mark.parametrize("text", REASONING)
def test_the_analysis_channel_is_reasoning(text: str) -> None:
    for pieces in halves(text):
        assert split_reasoning(GptOssReasoningParser(), *pieces) == REASONING[text]


def test_without_a_tool_parser_calls_leave_no_markers() -> None:
    for pieces in halves(f"{THOUGHT}<|start|>assistant{ROME}{FINAL}"):
        parser = GptOssReasoningParser()
        parser.keeps_calls = False
        content = '{"city": "Rome"}\nIt is sunny.'
        assert split_reasoning(parser, *pieces) == ("The user wants the weather.", content)


def test_the_tool_parser_reads_the_remaining_content() -> None:
    text = f"{THOUGHT}<|start|>assistant<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant{ROME}"
    _, content = split_reasoning(GptOssReasoningParser(), text)
    assert parse(GptOssToolParser(TOOLS), content) == ("I will look.", [ROME_CALL])


def test_a_prompt_may_end_inside_the_reasoning() -> None:
    parser = GptOssReasoningParser(in_reasoning=True)
    assert split_reasoning(parser, "Hm.<|end|>" + FINAL) == ("Hm.", "It is sunny.")


def test_reasoning_is_streamed() -> None:
    parser = GptOssReasoningParser()
    assert list(parser.feed("<|channel|>analysis<|message|>One ")) == [ReasoningDelta("One ")]
    assert list(parser.feed("two<|")) == [ReasoningDelta("two")]
