"""Feeds texts to parsers in pieces and collects the results: shared by the tests of all parsers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from llmfw.core.interfaces.parsers import (
    ContentDelta,
    ReasoningDelta,
    ReasoningParser,
    ToolCallDelta,
    ToolParser,
)


class ToolExample(NamedTuple):
    """A text as the model writes it, and a tool parser's result for it.

    Attributes:
        text: the whole content of one choice.
        calls: name, and arguments as JSON text, of each call in it.
        content: the rest of the text.
    """

    text: str
    calls: Sequence[tuple[str, str]]
    content: str = ""


class ReasoningExample(NamedTuple):
    """A text as the model writes it, and a reasoning parser's result for it.

    Attributes:
        text: the whole text of one choice.
        reasoning, content: expected reasoning and content. White space at their ends is ignored.
        in_reasoning: whether the prompt ended inside the reasoning.
    """

    text: str
    reasoning: str
    content: str
    in_reasoning: bool = False


class ParsedCalls(NamedTuple):
    """Collected results of a tool parser: all content, and each call's name and arguments."""

    content: str
    calls: list[tuple[str, str]]


class ParsedReasoning(NamedTuple):
    """Collected results of a reasoning parser: all reasoning, and all content."""

    reasoning: str
    content: str


def parse_calls(parser: ToolParser, *texts: str) -> ParsedCalls:
    """Feed texts to a tool parser; return content and calls.

    Raises:
        AssertionError: a delta is not what its class says.
    """
    deltas = [delta for text in texts for delta in parser.feed(text)] + list(parser.finish())
    content = ""
    calls: list[tuple[str, str]] = []
    for delta in deltas:
        if isinstance(delta, ContentDelta):
            assert delta.text, "a ContentDelta without text was given"
            content += delta.text
            continue
        assert isinstance(delta, ToolCallDelta), f"{delta!r} is neither a ContentDelta nor a ToolCallDelta"
        if delta.index == len(calls):
            assert delta.name, f"the first delta of a call has no name: {delta}"
            calls.append((delta.name, ""))
        else:
            assert delta.name is None, f"only the first delta of a call has the name: {delta}"
        assert delta.index == len(calls) - 1, (
            f"after {len(calls)} calls there is one with index {delta.index}"
        )
        calls[-1] = (calls[-1][0], calls[-1][1] + delta.arguments)
    return ParsedCalls(content, calls)


def split_reasoning(parser: ReasoningParser, *texts: str) -> ParsedReasoning:
    """Feed texts to a reasoning parser; return reasoning and content.

    Raises:
        AssertionError: a delta is of another class, or has no text.
    """
    deltas = [delta for text in texts for delta in parser.feed(text)] + list(parser.finish())
    for delta in deltas:
        kinds = ReasoningDelta | ContentDelta
        assert isinstance(delta, kinds), f"{delta!r} is neither a ReasoningDelta nor a ContentDelta"
        assert delta.text, f"a {type(delta).__name__} without text was given"
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    return ParsedReasoning(
        reasoning, "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
    )


def cut(text: str, places: Sequence[int]) -> list[str]:
    """Return a text in pieces; places beyond its end wrap around."""
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def halves(text: str) -> Iterator[list[str]]:
    """Yield a text cut in two at each place, and finally in single characters."""
    for place in range(len(text) + 1):
        yield [text[:place], text[place:]]
    yield list(text)


def solid(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())


def tool_of(name: str, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Return a tool definition whose parameters are the arguments of some calls."""
    properties: dict[str, Any] = {}
    for text in arguments:
        try:
            found = json.loads(text)
        except ValueError:
            continue
        properties |= {key: {"type": _type_of(value)} for key, value in found.items()}
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def tools_of(examples: Sequence[ToolExample]) -> list[Mapping[str, Any]]:
    """Return definitions of the tools that the examples call."""
    arguments: dict[str, list[str]] = {}
    for example in examples:
        for name, text in example.calls:
            arguments.setdefault(name, []).append(text)
    return [tool_of(name, texts) for name, texts in arguments.items()]


_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def _type_of(value: object) -> str:
    return _TYPES.get(type(value), "null")
