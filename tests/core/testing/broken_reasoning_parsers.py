"""Reasoning parsers that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

from typing import Any

import pytest

from llmfw.core.interfaces.parsers import ContentDelta, ReasoningDelta, ReasoningParser
from llmfw.core.testing import ReasoningExample, ReasoningParserTests
from llmfw.plugins.parsers_families.qwen3_reasoning import Deltas, Qwen3ReasoningParser


class DropsHeldText(Qwen3ReasoningParser):
    def finish(self) -> Deltas:
        super().finish()
        return []


class IgnoresInReasoning(Qwen3ReasoningParser):
    def __init__(self, *, in_reasoning: bool = False) -> None:
        super().__init__()


class DependsOnChunking(Qwen3ReasoningParser):
    def feed(self, text: str) -> Deltas:
        return super().feed(text) + super().finish()


class UnclosedAsContent(Qwen3ReasoningParser):
    def __init__(self, *, in_reasoning: bool = False) -> None:
        super().__init__(in_reasoning=in_reasoning)
        self.held = ""

    def feed(self, text: str) -> Deltas:
        self.held += text
        return []

    def finish(self) -> Deltas:
        deltas = super().feed(self.held) + super().finish()
        return deltas if self.closing in self.held else [ContentDelta(d.text) for d in deltas]


class KeepsTags(Qwen3ReasoningParser):
    def _begin_reasoning(self) -> Deltas:
        return [ReasoningDelta(self.opening), *super()._begin_reasoning()]


class EmitsEmptyDeltas(Qwen3ReasoningParser):
    def finish(self) -> Deltas:
        return [*super().finish(), ContentDelta("")]


class KeepsState(Qwen3ReasoningParser):
    last: Any = None

    def feed(self, text: str) -> Deltas:
        first, type(self).last = type(self).last or self, self
        deltas = super().feed(text)
        return deltas if first is self else [*deltas, ContentDelta("and")]


class FinishesWithStrings(Qwen3ReasoningParser):
    def finish(self) -> Any:
        return [delta.text for delta in super().finish()]


class OfKind(ReasoningParserTests):
    kind: type[ReasoningParser]

    @pytest.fixture
    def parser(self) -> type[ReasoningParser]:
        return self.kind

    @pytest.fixture
    def examples(self) -> list[ReasoningExample]:
        return [ReasoningExample("<think>\nHm.\n</think>\n\nYes.", "Hm.", "Yes.")]


def test_class(kind: type[ReasoningParser]) -> Any:
    """Return a test class for a parser."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in (Qwen3ReasoningParser, *Qwen3ReasoningParser.__subclasses__()):
    if _kind.__module__ in (__name__, Qwen3ReasoningParser.__module__):
        globals()[f"Test{_kind.__name__}"] = test_class(_kind)
