"""Conformance tests of the `ToolParser` interface."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.interfaces.parsers import ToolCallDelta, ToolParser

from .declared import declared
from .parsing import ToolExample, cut, halves, parse_calls, solid, tool_of, tools_of
from .stores import drawn
from .tool_definitions import with_other_meanings, with_same_meaning

TOOLS: list[Mapping[str, Any]] = [tool_of("get_weather", ['{"city": "Rome", "days": 3}']), tool_of("now")]
PLAIN = (
    "It is sunny.",
    "",
    " \n",
    "a < b > c [1] {2} (3)",
    '{"a": [1, "x"]}',
    "to be\n\nor not",
    "é\U0001f600",
)

names = st.text(st.sampled_from("abXYZ019_-"), min_size=1, max_size=12)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
arguments_texts = st.builds(
    lambda value, ascii, indent: json.dumps(value, ensure_ascii=ascii, indent=indent),
    st.dictionaries(st.text(), values, max_size=4),
    st.booleans(),
    st.none() | st.just(1),
)
places = st.lists(st.integers(0, 500), max_size=20)


class ToolParserTests:
    """Conformance tests of a tool parser.

    Derive from this class and override the fixture `parser` (and `examples` and `streams_arguments`).
    """

    @pytest.fixture
    def parser(self) -> type[ToolParser]:
        """Return the class of the parser under test."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture parser")

    @pytest.fixture
    def examples(self, parser: type[ToolParser]) -> Sequence[ToolExample]:
        """Return sample model outputs with the calls expected from them.

        Tool definitions are derived from the calls.
        """
        examples: Sequence[Sequence[Any]] = declared(parser, "examples", ())
        return [ToolExample(*example) for example in examples]

    @pytest.fixture
    def streams_arguments(self, parser: type[ToolParser]) -> bool:
        """Return whether the parser returns arguments before they are complete."""
        return declared(parser, "streams_arguments", False)

    @pytest.fixture
    def tools(self, examples: Sequence[ToolExample]) -> Sequence[Mapping[str, Any]]:
        """Return definitions of the tools that the examples call."""
        return tools_of(examples) or TOOLS

    @pytest.fixture
    def texts(self, parser: type[ToolParser], examples: Sequence[ToolExample]) -> list[str]:
        """Return the texts of the examples, and some built from the parser's `call_format`."""
        written = [_written(parser, TOOLS[0], '{"city": "Rome"}')] if parser.call_format else []
        return [*(example.text for example in examples), *written, *PLAIN]

    @given(text=st.text(max_size=60), places=places)
    @drawn
    def test_text_without_calls_is_returned_unchanged(
        self, parser: type[ToolParser], tools: Sequence[Mapping[str, Any]], text: str, places: list[int]
    ) -> None:
        for each in (text, *PLAIN):
            assert parse_calls(parser(tools), *cut(each, places)) == (each, [])

    def test_the_calls_of_the_examples_are_found(
        self,
        parser: type[ToolParser],
        examples: Sequence[ToolExample],
        tools: Sequence[Mapping[str, Any]],
    ) -> None:
        needs_examples(examples)
        for example in examples:
            found = parse_calls(parser(tools), example.text)
            assert (found.calls, found.content) == ([*map(tuple, example.calls)], example.content), (
                example.text
            )

    def test_equal_definitions_give_equal_calls(
        self, parser: type[ToolParser], texts: list[str], tools: Sequence[Mapping[str, Any]]
    ) -> None:
        """Clients write the schema of a parameter in several forms, such as `anyOf` with one type."""
        for text in texts:
            expected = parse_calls(parser(tools), text)
            for form, defined in with_same_meaning(tools):
                assert (form, parse_calls(parser(defined), text)) == (form, expected), text

    def test_values_need_not_fit_their_schemas(
        self, parser: type[ToolParser], texts: list[str], tools: Sequence[Mapping[str, Any]]
    ) -> None:
        """For any parameter schema, calls keep their names, and their arguments are a JSON object."""
        for text in texts:
            expected = parse_calls(parser(tools), text)
            complete = [is_object(arguments) for _, arguments in expected.calls]
            for form, defined in with_other_meanings(tools):
                found = parse_calls(parser(defined), *text)
                assert (form, found.content) == (form, expected.content), text
                assert [name for name, _ in found.calls] == [name for name, _ in expected.calls], (form, text)
                assert [is_object(arguments) for _, arguments in found.calls] == complete, (form, text)

    def test_chunking_does_not_change_the_result(
        self, parser: type[ToolParser], texts: list[str], tools: Sequence[Mapping[str, Any]]
    ) -> None:
        for text in texts:
            whole = parse_calls(parser(tools), text)
            for pieces in halves(text):
                assert parse_calls(parser(tools), *pieces) == whole, pieces

    @given(data=st.data(), places=places)
    @drawn
    def test_chunking_mixed_texts_gives_the_same_result(
        self,
        parser: type[ToolParser],
        texts: list[str],
        tools: Sequence[Mapping[str, Any]],
        data: st.DataObject,
        places: list[int],
    ) -> None:
        """Texts are joined at random and cut off at both ends."""
        text = "".join(data.draw(st.lists(st.sampled_from(texts), min_size=1, max_size=3)))
        start, end = data.draw(st.tuples(st.integers(0, 20), st.integers(0, 20)))
        text = text[start : len(text) - end]
        pieces = cut(text, places)
        assert parse_calls(parser(tools), *pieces) == parse_calls(parser(tools), text), pieces

    @given(calls=st.lists(st.tuples(names, arguments_texts), min_size=1, max_size=4), places=places)
    @drawn
    def test_the_parser_reads_its_call_format(
        self, parser: type[ToolParser], calls: list[tuple[str, str]], places: list[int]
    ) -> None:
        form = needs_call_format(parser)
        assert form.begin.startswith(form.trigger)
        written = [form.begin.replace("{name}", name) + arguments + form.end for name, arguments in calls]
        text = form.before + form.between.join(written) + form.after
        tools = [tool_of(name) for name, _ in calls]
        found = parse_calls(parser(tools), *cut(text, places))
        assert (found.calls, solid(found.content)) == (calls, "")

    def test_calls_of_unknown_tools_are_text(self, parser: type[ToolParser], texts: list[str]) -> None:
        for text in texts:
            found = parse_calls(parser([]), text)
            assert (found.calls, solid(found.content)) == ([], solid(text))

    def test_an_incomplete_call_is_returned_as_text(
        self, parser: type[ToolParser], texts: list[str], tools: Sequence[Mapping[str, Any]]
    ) -> None:
        for text in texts:
            for end in range(len(text)):
                found = parse_calls(parser(tools), text[:end])
                assert found.calls or solid(found.content) == solid(text[:end])

    def test_each_choice_has_independent_state(
        self, parser: type[ToolParser], texts: list[str], tools: Sequence[Mapping[str, Any]]
    ) -> None:
        for text in texts:
            one, other, alone = parser(tools), parser(tools), parser(tools)
            middle = len(text) // 2
            deltas = [*one.feed(text[:middle])]
            other.feed(text)
            deltas += [*one.feed(text[middle:]), *one.finish()]
            assert deltas == [*alone.feed(text[:middle]), *alone.feed(text[middle:]), *alone.finish()]

    def test_empty_text_gives_no_deltas(
        self, parser: type[ToolParser], tools: Sequence[Mapping[str, Any]]
    ) -> None:
        empty = parser(tools)
        assert [*empty.feed(""), *empty.finish()] == []

    def test_arguments_are_streamed_before_completion(
        self, parser: type[ToolParser], streams_arguments: bool
    ) -> None:
        if not streams_arguments:
            pytest.skip("the parser does not have the capability streams_arguments")
        form = needs_call_format(parser)
        begun = form.before + form.begin.replace("{name}", "get_weather") + '{"city": "Ro'
        found = [delta for delta in parser(TOOLS).feed(begun) if isinstance(delta, ToolCallDelta)]
        assert [delta.name for delta in found if delta.name] == ["get_weather"]
        assert "".join(delta.arguments for delta in found) == '{"city": "Ro'


def is_object(text: str) -> bool:
    """Return whether a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def needs_examples(examples: Sequence[object]) -> None:
    """Skip the test if the parser declares no examples."""
    if not examples:
        pytest.skip("the parser does not have the capability examples (texts as its model writes them)")


def needs_call_format(parser: type[ToolParser]) -> Any:
    """Return the parser's call format; skip the test if the parser declares none."""
    if parser.call_format is None:
        pytest.skip("the parser does not have the capability call_format (calls with JSON arguments)")
    return parser.call_format


def _written(parser: type[ToolParser], tool: Mapping[str, Any], arguments: str) -> str:
    form = parser.call_format
    assert form is not None
    begin = form.begin.replace("{name}", tool["function"]["name"])
    return form.before + begin + arguments + form.end + form.after
