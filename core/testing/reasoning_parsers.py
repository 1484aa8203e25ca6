"""Conformance tests of the `ReasoningParser` interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.interfaces.parsers import ReasoningParser

from .declared import declared
from .parsing import ReasoningExample, cut, halves, split_reasoning
from .stores import drawn
from .tool_parsers import needs_examples

PLAIN = ("It is sunny.", "", " \n", "a < b > c [1] {2} (3)", "to be\n\nor not", "é\U0001f600")
THOUGHT, ANSWER = "Hm, a < b [1].", "It is\nsunny."

places = st.lists(st.integers(0, 500), max_size=20)


class ReasoningParserTests:
    """Conformance tests of a reasoning parser.

    Derive from this class and override the fixture `parser` (and `examples`). Leading and trailing white
    space of the reasoning and the content is not checked.
    """

    @pytest.fixture
    def parser(self) -> type[ReasoningParser]:
        """Return the class of the parser under test."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture parser")

    @pytest.fixture
    def examples(self, parser: type[ReasoningParser]) -> Sequence[ReasoningExample]:
        """Return sample model outputs, with the reasoning and content expected from them."""
        examples: Sequence[Sequence[Any]] = declared(parser, "examples", ())
        return [ReasoningExample(*example) for example in examples]

    @pytest.fixture
    def texts(self, parser: type[ReasoningParser], examples: Sequence[ReasoningExample]) -> list[str]:
        """Return the texts of the examples, and some built from the parser's `opening` and `closing`."""
        opening, closing = parser.opening or "", parser.closing or ""
        written = [f"{opening}{THOUGHT}{closing}{ANSWER}", f"{ANSWER}{opening}", f"{closing}{THOUGHT}"]
        return [*(example.text for example in examples), *written, *PLAIN]

    @given(text=st.text(max_size=60), places=places, in_reasoning=st.booleans())
    @drawn
    def test_text_without_tags_is_returned_unchanged(
        self, parser: type[ReasoningParser], text: str, places: list[int], in_reasoning: bool
    ) -> None:
        for each in (text, *PLAIN):
            found = split_reasoning(parser(in_reasoning=in_reasoning), *cut(each, places))
            assert (found.reasoning + found.content).strip() == each.strip()

    @pytest.mark.parametrize("in_reasoning", [False, True])
    def test_an_incomplete_tag_is_returned_as_text(
        self, parser: type[ReasoningParser], in_reasoning: bool
    ) -> None:
        marks = [mark[:2] for mark in (parser.opening, parser.closing) if mark]
        if not marks:
            pytest.skip("the parser has neither the capability opening nor closing")
        for text in (*marks, *(ANSWER + mark for mark in marks)):
            found = split_reasoning(parser(in_reasoning=in_reasoning), text)
            assert (found.reasoning + found.content).strip() == text

    @pytest.mark.parametrize("space", ["", "\n", "\n\n"])
    def test_text_between_the_tags_is_reasoning(self, parser: type[ReasoningParser], space: str) -> None:
        opening, closing = parser.opening, needs_closing(parser)
        if opening is None:
            pytest.skip("the parser does not have the capability opening (a text that opens the reasoning)")
        text = f"{opening}{space}{THOUGHT}{space}{closing}{space}{ANSWER}"
        for pieces in halves(text):
            check_split(parser(), pieces, THOUGHT, ANSWER)

    @pytest.mark.parametrize("space", ["", "\n", "\n\n"])
    def test_text_starts_inside_reasoning_the_prompt_opened(
        self, parser: type[ReasoningParser], space: str
    ) -> None:
        text = f"{space}{THOUGHT}{space}{needs_closing(parser)}{space}{ANSWER}"
        for pieces in halves(text):
            check_split(parser(in_reasoning=True), pieces, THOUGHT, ANSWER)

    def test_unclosed_text_is_reasoning(self, parser: type[ReasoningParser]) -> None:
        needs_closing(parser)
        check_split(parser(in_reasoning=True), [THOUGHT], THOUGHT, "")
        if parser.opening is not None:
            check_split(parser(), [parser.opening, THOUGHT], THOUGHT, "")

    def test_the_examples_are_split_correctly(
        self, parser: type[ReasoningParser], examples: Sequence[ReasoningExample]
    ) -> None:
        needs_examples(examples)
        for text, reasoning, content, in_reasoning in examples:
            for pieces in halves(text):
                check_split(parser(in_reasoning=in_reasoning), pieces, reasoning, content)

    @pytest.mark.parametrize("in_reasoning", [False, True])
    def test_chunking_does_not_change_the_result(
        self, parser: type[ReasoningParser], texts: list[str], in_reasoning: bool
    ) -> None:
        for text in texts:
            whole = split_reasoning(parser(in_reasoning=in_reasoning), text)
            for pieces in halves(text):
                assert split_reasoning(parser(in_reasoning=in_reasoning), *pieces) == whole, pieces

    @given(data=st.data(), places=places, in_reasoning=st.booleans())
    @drawn
    def test_chunking_mixed_texts_gives_the_same_result(
        self,
        parser: type[ReasoningParser],
        texts: list[str],
        data: st.DataObject,
        places: list[int],
        in_reasoning: bool,
    ) -> None:
        """Texts are joined at random and cut off at both ends."""
        text = "".join(data.draw(st.lists(st.sampled_from(texts), min_size=1, max_size=3)))
        start, end = data.draw(st.tuples(st.integers(0, 20), st.integers(0, 20)))
        text = text[start : len(text) - end]
        pieces = cut(text, places)
        found = split_reasoning(parser(in_reasoning=in_reasoning), *pieces)
        assert found == split_reasoning(parser(in_reasoning=in_reasoning), text), pieces

    def test_each_choice_has_independent_state(self, parser: type[ReasoningParser], texts: list[str]) -> None:
        for text in texts:
            one, other, alone = parser(), parser(), parser()
            middle = len(text) // 2
            deltas = [*one.feed(text[:middle])]
            other.feed(text)
            deltas += [*one.feed(text[middle:]), *one.finish()]
            assert deltas == [*alone.feed(text[:middle]), *alone.feed(text[middle:]), *alone.finish()]

    @pytest.mark.parametrize("in_reasoning", [False, True])
    def test_empty_text_gives_no_deltas(self, parser: type[ReasoningParser], in_reasoning: bool) -> None:
        empty = parser(in_reasoning=in_reasoning)
        assert [*empty.feed(""), *empty.finish()] == []


def needs_closing(parser: type[ReasoningParser]) -> str:
    """Return the text that closes the reasoning; skip the test if the parser declares none."""
    if parser.closing is None:
        pytest.skip("the parser does not have the capability closing (a text that closes the reasoning)")
    return parser.closing


def check_split(parser: ReasoningParser, pieces: Sequence[str], reasoning: str, content: str) -> None:
    """Assert that a parser splits a text, fed in pieces, into this reasoning and content."""
    found = split_reasoning(parser, *pieces)
    assert (found.reasoning.strip(), found.content.strip()) == (reasoning.strip(), content.strip()), pieces
