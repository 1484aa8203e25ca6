"""Reasoning between <think> and </think>."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.interfaces.parsers import ReasoningDelta
from llmfw.plugins.parsers_families.qwen3_reasoning import Qwen3ReasoningParser

pieces = st.sampled_from(["<think>", "</think>", "<", "think", ">", "\n\n", " ", "a", "b"])


def parse(*texts: str, in_reasoning: bool = False) -> tuple[str, str]:
    """Return reasoning and content."""
    parser = Qwen3ReasoningParser(in_reasoning=in_reasoning)
    deltas = [delta for text in texts for delta in parser.feed(text)] + list(parser.finish())
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    return reasoning, "".join(delta.text for delta in deltas if not isinstance(delta, ReasoningDelta))


@given(st.lists(pieces, max_size=12).map("".join), st.lists(st.integers(0, 100)), st.booleans())
def test_chunking_does_not_change_the_result(text: str, places: list[int], inside: bool) -> None:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    cut = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert parse(*cut, in_reasoning=inside) == parse(text, in_reasoning=inside)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>\nHm.\n</think>\n\nYes.", "Hm.", "Yes."),
        ("\n<think>Hm.</think>Yes.", "Hm.", "Yes."),
        ("<think>\n\n</think>\n\nYes.", "", "Yes."),
        ("Yes.", "", "Yes."),
        (" Yes.\n", "", " Yes.\n"),
        ("Yes. <think>no</think>", "", "Yes. <think>no</think>"),
        ("<thinking>", "", "<thinking>"),
        ("<think>a < b </thin", "a < b </thin", ""),
        ("<think>Hm.</think>a</think>", "Hm.", "a</think>"),
        ("<th", "", "<th"),
    ],
)
def test_a_block_at_the_beginning_is_reasoning(text: str, reasoning: str, content: str) -> None:
    assert parse(text) == (reasoning, content)


def test_an_opened_block_needs_no_opening_tag() -> None:
    assert parse("\nHm.\n</think>\nYes.", in_reasoning=True) == ("Hm.", "Yes.")


def test_reasoning_is_streamed() -> None:
    parser = Qwen3ReasoningParser()
    assert list(parser.feed("<think>One ")) == [ReasoningDelta("One")]
    assert list(parser.feed("two")) == [ReasoningDelta(" two")]
