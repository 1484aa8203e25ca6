"""The reasoning parser `qwen3`: reasoning between <think> and </think>, before the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from llmfw.core import ContentDelta, ReasoningDelta, ReasoningParser

from .markers import certain_length

Deltas = list[ReasoningDelta | ContentDelta]


class Qwen3ReasoningParser(ReasoningParser):
    """Splits off one block of reasoning at the start of the output.

    White space at both ends of the reasoning, and before the answer, is dropped. Later markers are part of
    the answer. If the closing marker is missing, everything up to the end of the output is reasoning.
    """

    conformance: ClassVar[Mapping[str, Any]] = {
        "examples": [("<think>\nHm.\n</think>\n\nYes.", "Hm.", "Yes."), ("Yes.", "", "Yes.")]
    }

    opening: ClassVar[str] = "<think>"
    closing: ClassVar[str] = "</think>"
    spaces = ("\n", "\n\n")

    def __init__(self, *, in_reasoning: bool = False) -> None:
        super().__init__(in_reasoning=in_reasoning)
        # Functions, not bound methods: a parser that refers to itself would wait for the garbage collector.
        cls = type(self)
        self._read: Callable[[Any], Deltas] = cls._read_reasoning if in_reasoning else cls._read_start
        self._text = ""
        self._strip = in_reasoning  # whether to drop white space next, because it follows a marker

    def feed(self, text: str) -> Deltas:
        self._text += text
        return self._read(self)

    def finish(self) -> Deltas:
        deltas = self._without_opening() if self._read == type(self)._read_start else []
        text, self._text = self._text, ""
        if text:
            deltas.append(
                ReasoningDelta(text) if self._read == type(self)._read_reasoning else ContentDelta(text)
            )
        return deltas

    def _read_start(self) -> Deltas:
        """Check whether the output starts with the opening marker, as soon as this is certain."""
        text = self._text.lstrip()
        if text.startswith(self.opening):
            self._text = text[len(self.opening) :]
            return self._begin_reasoning()
        return [] if self.opening.startswith(text) else self._without_opening()

    def _without_opening(self) -> Deltas:
        """Continue with an output that does not start with the opening marker."""
        self._read = type(self)._read_content
        return self._read(self)

    def _begin_reasoning(self) -> Deltas:
        self._read, self._strip = type(self)._read_reasoning, True
        return self._read(self)

    def _read_reasoning(self) -> Deltas:
        self._skip_space()
        before, marker, after = self._text.partition(self.closing)
        if marker:
            self._text = after
            self._read, self._strip = type(self)._read_content, True
            reasoning: Deltas = [ReasoningDelta(before.rstrip())] if before.strip() else []
            return reasoning + self._read(self)
        certain = certain_length(self._text, self.closing)
        text, self._text = self._text[:certain], self._text[certain:]
        return [ReasoningDelta(text)] if text else []

    def _read_content(self) -> Deltas:
        self._skip_space()
        text, self._text = self._text, ""
        return [ContentDelta(text)] if text else []

    def _skip_space(self) -> None:
        if self._strip:
            self._text = self._text.lstrip()
            self._strip = not self._text
