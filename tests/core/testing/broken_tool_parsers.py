"""Tool parsers that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import pytest

from llmfw.core.interfaces.parsers import CallFormat, ContentDelta, ToolCallDelta, ToolParser
from llmfw.core.testing import ToolExample, ToolParserTests

CALL = re.compile(r'<call name="([\w-]+)">(\{.*?\})</call>', re.DOTALL)
Delta = ContentDelta | ToolCallDelta


class GoodTools(ToolParser):
    """Keeps all promises: what the others are measured by."""

    call_format = CallFormat(begin='<call name="{name}">', end="</call>", trigger="<call name=")

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(tools)
        self.names = {tool["function"]["name"] for tool in tools}
        self.text = ""
        self.num_calls = 0

    def is_call(self, name: str, arguments: str) -> bool:
        try:
            return name in self.names and isinstance(json.loads(arguments), dict)
        except ValueError:
            return False

    def feed(self, text: str) -> list[Delta]:
        self.text += text
        deltas: list[Delta] = []
        while call := CALL.search(self.text):
            deltas += self.content(call.start())
            if self.is_call(call[1], call[2]):
                self.text = self.text[len(call[0]) :]
                deltas += self.call(call[1], call[2])
            else:
                deltas += self.content(len(call[0]))
        return deltas + self.content((self.text + "<").index("<"))

    def call(self, name: str, arguments: str) -> list[Delta]:
        self.num_calls += 1
        return [ToolCallDelta(self.num_calls - 1, name, arguments)]

    def finish(self) -> list[Delta]:
        return self.content(len(self.text))

    def content(self, length: int) -> list[Delta]:
        text, self.text = self.text[:length], self.text[length:]
        return [ContentDelta(text)] if text else []


class DropsHeldText(GoodTools):
    def finish(self) -> list[Delta]:
        return []


class DependsOnChunking(GoodTools):
    def feed(self, text: str) -> list[Delta]:
        return super().feed(text) + self.content(len(self.text))


class AcceptsUnknownTools(GoodTools):
    def is_call(self, name: str, arguments: str) -> bool:
        return True


class IndexesFromOne(GoodTools):
    def call(self, name: str, arguments: str) -> list[Delta]:
        self.num_calls += 1
        return [ToolCallDelta(self.num_calls, name, arguments)]


class RepeatsNames(GoodTools):
    def call(self, name: str, arguments: str) -> list[Delta]:
        [first] = super().call(name, arguments[:1])
        assert isinstance(first, ToolCallDelta)
        return [first, msgspec.structs.replace(first, arguments=arguments[1:])]


class ReformatsArguments(GoodTools):
    def call(self, name: str, arguments: str) -> list[Delta]:
        return super().call(name, json.dumps(json.loads(arguments)))


class TrimsText(GoodTools):
    def content(self, length: int) -> list[Delta]:
        return [
            ContentDelta(d.text.rstrip())
            for d in super().content(length)
            if isinstance(d, ContentDelta) and d.text.strip()
        ]


class EmitsEmptyDeltas(GoodTools):
    def finish(self) -> list[Delta]:
        return [ContentDelta(self.text)]


class SharesState(GoodTools):
    shared: ClassVar[dict[str, str]] = {}

    @property
    def text(self) -> str:
        return self.shared["text"]

    @text.setter
    def text(self, text: str) -> None:
        self.shared["text"] = text


class KnowsOneForm(GoodTools):
    """Takes an argument for a text if its type is not written as one name."""

    def call(self, name: str, arguments: str) -> list[Delta]:
        tool = next(tool["function"] for tool in self.tools if tool["function"]["name"] == name)
        schemas = tool.get("parameters", {}).get("properties", {})
        texts = {key for key, schema in schemas.items() if not isinstance(schema.get("type"), str)}
        read = {key: str(value) if key in texts else value for key, value in json.loads(arguments).items()}
        return super().call(name, json.dumps(read) if texts else arguments)


class NeedsParameters(GoodTools):
    def call(self, name: str, arguments: str) -> list[Delta]:
        next(t["function"]["parameters"] for t in self.tools if t["function"]["name"] == name)
        return super().call(name, arguments)


class WrongTrigger(GoodTools):
    call_format = CallFormat(begin='<call name="{name}">', end="</call>", trigger="<tool=")


class OfKind(ToolParserTests):
    kind: type[ToolParser]

    @pytest.fixture
    def parser(self) -> type[ToolParser]:
        return self.kind

    @pytest.fixture
    def examples(self) -> list[ToolExample]:
        text = 'a <call name="add">{"a":1}</call> b<call name="now">{}</call>'
        return [ToolExample(text, [("add", '{"a":1}'), ("now", "{}")], "a  b")]


def test_class(kind: type[ToolParser]) -> Any:
    """Return a test class for a parser."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in (GoodTools, *GoodTools.__subclasses__()):
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
