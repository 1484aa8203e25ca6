"""A tool parser returns calls of the request's tools, each with one name and an index in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from llmfw.core.base.errors import ComponentFailedError
from llmfw.core.interfaces.parsers import ContentDelta, ToolCallDelta, ToolParser
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.guard import guarded
from llmfw.core.plugin.registry import Entry

TOOLS = [{"type": "function", "function": {"name": "look"}}]
FIRST = ToolCallDelta(0, "look", "{")
REST = ToolCallDelta(0, None, "}")
SECOND = ToolCallDelta(1, "look", "{}")


class Scripted(ToolParser):
    """Returns the deltas that `script` has for a text."""

    script: Sequence[ContentDelta | ToolCallDelta] = ()

    def feed(self, text: str) -> Any:
        return self.script[: len(text)]

    def finish(self) -> Any:
        return self.script[1:] if self.feed("") else ()


def parser(*script: ContentDelta | ToolCallDelta) -> Any:
    calls = ComponentCalls(Entry("tool_parser", "bad", "ext:Bad", "ext", "llmfw-ext", "1.2"))
    made: Any = guarded(Scripted, ToolParser, calls, per_request=True)(TOOLS)
    made.script = script
    return made


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([ToolCallDelta(0, None, "{}")], "a call without a name"),
        ([ToolCallDelta(0, "", "{}")], "a call without a name"),
        ([ToolCallDelta(-1, "look")], "after 0 calls"),
        ([SECOND], "after 0 calls"),
        ([FIRST, FIRST], "the name of a call twice"),
        ([FIRST, SECOND, REST], "after 2 calls"),
        ([ToolCallDelta(0, "dig")], "a tool that the request lacks"),
    ],
)
def test_wrong_calls_are_the_parser_s_fault(
    script: list[Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ComponentFailedError, match="tool parser 'bad'"):
        parser(*script).feed("...")
    assert reason in caplog.text


def test_calls_in_order_pass() -> None:
    script = [ContentDelta("a"), FIRST, REST, SECOND]
    assert parser(*script).feed("....") == tuple(script)


def test_finish_continues_what_feed_began(caplog: pytest.LogCaptureFixture) -> None:
    made = parser(FIRST, FIRST)
    made.feed(".")
    with pytest.raises(ComponentFailedError):
        made.feed(".")


def test_a_parser_s_own_calls_are_checked_once() -> None:
    class Nested(Scripted):
        def finish(self) -> Any:
            return self.feed(".")

    calls = ComponentCalls(Entry("tool_parser", "bad", "ext:Bad", "ext", "llmfw-ext", "1.2"))
    made: Any = guarded(Nested, ToolParser, calls, per_request=True)(TOOLS)
    made.script = [FIRST]
    assert made.finish() == [FIRST]
