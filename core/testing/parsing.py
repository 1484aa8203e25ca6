"""Helpers for tests of parsers: feed a text in pieces, and join the deltas that the parser returns."""

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
    """A sample model output, and the result expected from a tool parser.

    Attributes:
        text: complete text of one choice.
        calls: name and arguments (JSON text) of each tool call in the text.
        content: text outside the calls.
    """

    text: str
    calls: Sequence[tuple[str, str]]
    content: str = ""


class ReasoningExample(NamedTuple):
    """A sample model output, and the result expected from a reasoning parser.

    Attributes:
        text: complete text of one choice.
        reasoning, content: expected reasoning and content. Leading and trailing white space is ignored.
        in_reasoning: whether the prompt ends inside the reasoning.
    """

    text: str
    reasoning: str
    content: str
    in_reasoning: bool = False


class ParsedCalls(NamedTuple):
    """Joined output of a tool parser: the content, and the name and arguments of each call."""

    content: str
    calls: list[tuple[str, str]]


class ParsedReasoning(NamedTuple):
    """Joined output of a reasoning parser: the reasoning and the content."""

    reasoning: str
    content: str


def parse_calls(parser: ToolParser, *texts: str) -> ParsedCalls:
    """Feed pieces of a text to a tool parser, and return the joined deltas.

    Raises:
        AssertionError: a delta violates the rules of its class.
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
    """Feed pieces of a text to a reasoning parser, and return the joined deltas.

    Raises:
        AssertionError: a delta has the wrong class or no text.
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
    """Split a text at these indices. Indices beyond its end wrap around."""
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def halves(text: str) -> Iterator[list[str]]:
    """Yield all splits of a text into two pieces, and finally the split into single characters."""
    for place in range(len(text) + 1):
        yield [text[:place], text[place:]]
    yield list(text)


def solid(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())


def tool_of(name: str, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Return a tool definition whose parameters match the arguments of some calls.

    Args:
        name: name of the tool.
        arguments: arguments of calls, as JSON texts; invalid ones are ignored.
    """
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
    """Return definitions of the tools that the examples call, derived from the calls' arguments."""
    arguments: dict[str, list[str]] = {}
    for example in examples:
        for name, text in example.calls:
            arguments.setdefault(name, []).append(text)
    return [tool_of(name, texts) for name, texts in arguments.items()]


_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def _type_of(value: object) -> str:
    return _TYPES.get(type(value), "null")
