"""Texts fed to parsers, and what they give back put together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from llmfw.core.interfaces.parsers import (
    ContentDelta,
    ReasoningDelta,
    ReasoningParser,
    ToolCallDelta,
    ToolParser,
)

Parsed = tuple[str, list[tuple[str, str]]]
"""Content, and the calls' names and arguments."""


def tool(name: str, **properties: Any) -> dict[str, Any]:
    """Return a tool's definition."""
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("get_weather", city={"type": "string"}, days={"type": "integer"}),
    tool("add", a={"type": "number"}, b={"type": "number"}),
    tool(
        "run",
        code={"type": "string"},
        env={"type": "object"},
        args={"type": "array"},
        dry={"type": "boolean"},
    ),
    tool("now"),
]


def parse(parser: ToolParser, *texts: str) -> Parsed:
    """Feed texts; return content and calls. Checks that names come first and indices ascend."""
    deltas = [delta for text in texts for delta in parser.feed(text)] + list(parser.finish())
    content = ""
    calls: list[tuple[str, str]] = []
    for delta in deltas:
        if isinstance(delta, ContentDelta):
            assert delta.text
            content += delta.text
            continue
        if delta.name is not None:
            assert delta.index == len(calls)
            calls.append((delta.name, ""))
        assert delta.index == len(calls) - 1
        calls[-1] = (calls[-1][0], calls[-1][1] + delta.arguments)
    return content, calls


def first_calls(parser: ToolParser, text: str) -> list[ToolCallDelta]:
    """Return what a beginning of a text has given of its calls."""
    return [delta for delta in parser.feed(text) if isinstance(delta, ToolCallDelta)]


def split_reasoning(parser: ReasoningParser, *texts: str) -> tuple[str, str]:
    """Feed texts; return reasoning and content."""
    deltas = [delta for text in texts for delta in parser.feed(text)] + list(parser.finish())
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    return reasoning, "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))


def call(name: str, arguments: Mapping[str, Any] | str) -> tuple[str, str]:
    """Return a call with arguments as json.dumps writes them, or as they are given."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return name, text
