"""Reasoning parsers that differ from Qwen3's in markers, or in where a text begins."""

from __future__ import annotations

import pytest

from llmfw.core.interfaces.parsers import ReasoningDelta
from llmfw.core.testing.parsing import halves
from llmfw.plugins.parsers_families.deepseek import DeepSeekR1ReasoningParser
from llmfw.plugins.parsers_families.mistral import MistralReasoningParser

from .parsing import split_reasoning


@pytest.mark.parametrize("in_reasoning", [False, True])
@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("Hm.\n</think>\n\nYes.", "Hm.", "Yes."),
        ("\nHm, <b> </b>.</think>Yes.", "Hm, <b> </b>.", "Yes."),
        ("Hm, and so on", "Hm, and so on", ""),
        ("\n\n</think>\n\nYes.", "", "Yes."),
        ("<th", "<th", ""),
        ("Hm.</think>a</think>", "Hm.", "a</think>"),
    ],
)
def test_deepseek_r1_text_starts_inside_reasoning(
    text: str, reasoning: str, content: str, in_reasoning: bool
) -> None:
    for pieces in halves(text):
        parser = DeepSeekR1ReasoningParser(in_reasoning=in_reasoning)
        assert split_reasoning(parser, *pieces) == (reasoning, content)


@pytest.mark.parametrize("text", ["<think>\nHm.\n</think>\n\nYes.", "\n<think>Hm.</think>Yes."])
@pytest.mark.parametrize("in_reasoning", [False, True])
def test_an_opening_tag_of_r1_is_dropped(text: str, in_reasoning: bool) -> None:
    for pieces in halves(text):
        parser = DeepSeekR1ReasoningParser(in_reasoning=in_reasoning)
        assert split_reasoning(parser, *pieces) == ("Hm.", "Yes.")


def test_deepseek_r1_reasoning_is_streamed() -> None:
    parser = DeepSeekR1ReasoningParser()
    assert list(parser.feed("One ")) == [ReasoningDelta("One")]
    assert list(parser.feed("two")) == [ReasoningDelta(" two")]


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("[THINK]Hm [1].[/THINK]Oui.", "Hm [1].", "Oui."),
        ("Oui. [THINK]", "", "Oui. [THINK]"),
        ("[THINK]Hm.[/THI", "Hm.[/THI", ""),
    ],
)
def test_magistral_uses_its_own_markers(text: str, reasoning: str, content: str) -> None:
    for pieces in halves(text):
        assert split_reasoning(MistralReasoningParser(), *pieces) == (reasoning, content)
