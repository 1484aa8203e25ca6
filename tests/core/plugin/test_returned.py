"""A component that returns a value of the wrong type fails, and the log and the client name it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from llmfw.core.base.errors import ComponentFailedError
from llmfw.core.interfaces.chat_template import ChatTemplate
from llmfw.core.interfaces.file_store import FileStore
from llmfw.core.interfaces.parsers import ContentDelta, ToolCallDelta, ToolParser
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.guard import guarded
from llmfw.core.plugin.registry import Entry
from llmfw.core.plugin.returned import check_of

TOOLS = Entry("tool_parser", "bad", "ext.tools:Bad", "ext", "llmfw-ext", "1.2")
CALLS = ToolCallDelta(0, "f", "{}")


class LongText(str):
    """Text that claims to be longer than it is."""

    def __len__(self) -> int:
        return 10**9


class Parser(ToolParser):
    answer: Any = None

    def feed(self, text: str) -> Sequence[ContentDelta | ToolCallDelta]:
        return self.answer  # type: ignore[no-any-return]

    def finish(self) -> Sequence[ContentDelta | ToolCallDelta]:
        return []


def feed(answer: Any) -> Any:
    made = guarded(Parser, ToolParser, ComponentCalls(TOOLS), per_request=True)
    parser = made([{"type": "function", "function": {"name": "f", "parameters": {}}}])
    parser.answer = answer
    return parser.feed("x")


@pytest.mark.parametrize("answer", [[], (), [ContentDelta("é")], [CALLS, ContentDelta("x")]])
def test_right_answers_pass_unchanged(answer: Any) -> None:
    assert feed(answer) is answer


@pytest.mark.parametrize(
    "answer",
    [
        *(None, "abc", ["abc"], 7, ContentDelta("x")),
        *([ContentDelta(5)], [ContentDelta(None)], [ContentDelta("\ud800")], [ContentDelta(LongText("x"))]),  # type: ignore[arg-type]
        *([ToolCallDelta("0", "f")], [ToolCallDelta(0, "f", {"a": 1})]),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_type_is_the_components_failure(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ComponentFailedError, match="tool parser 'bad' of plugin 'ext'"):
        feed(answer)
    assert "failed in feed(): WrongReturnError: " in caplog.text


def test_a_template_returns_plain_text() -> None:
    check = check_of(ChatTemplate.render)
    assert check is not None
    with pytest.raises(Exception, match=r"^returned 'x' \(LongText\) in place of plain str$"):
        check(LongText("x"))


def test_the_message_shows_value_and_type() -> None:
    check = check_of(ChatTemplate.render)
    assert check is not None
    with pytest.raises(Exception, match=r"^returned b'x' \(bytes\) in place of text$"):
        check(b"x")


async def test_a_store_must_return_records() -> None:
    class Store(FileStore):
        async def get(self, file_id: str) -> Any:
            return {"id": file_id}

    Store.__abstractmethods__ = frozenset()
    store = guarded(Store, FileStore, ComponentCalls(TOOLS))(None)
    with pytest.raises(ComponentFailedError):
        await store.get("file-1")
