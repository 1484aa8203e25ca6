"""The bundled parsers keep the promises of their interfaces, each with its family's samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from llmfw.core.base.about import DISTRIBUTION
from llmfw.core.interfaces.parsers import ReasoningParser, ToolParser
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry
from llmfw.core.testing import ReasoningExample, ReasoningParserTests, ToolExample, ToolParserTests
from llmfw.core.testing.declared import declared
from llmfw.core.testing.parsing import tools_of

from . import (
    test_deepseek,
    test_harmony,
    test_hermes,
    test_json_calls,
    test_llama3_json,
    test_mistral,
    test_pythonic,
    test_qwen3_coder,
)
from .parsing import TOOLS, Parsed

CALLS: dict[str, Mapping[str, Parsed]] = {
    "hermes": test_hermes.SAMPLES,
    "llama3_json": test_llama3_json.SAMPLES,
    "json_calls": test_json_calls.SAMPLES,
    "pythonic": test_pythonic.SAMPLES,
    "mistral": test_mistral.SAMPLES,
    "deepseek_v3": test_deepseek.V3_SAMPLES,
    "deepseek_v31": test_deepseek.V31_SAMPLES,
    "gpt_oss": test_harmony.SAMPLES,
    "qwen3_coder": test_qwen3_coder.SAMPLES,
}
THINKING = "<think>\nHm, <b>.\n</think>\n\nYes."
THOUGHTS: dict[str, list[ReasoningExample]] = {
    "qwen3": [ReasoningExample(THINKING, "Hm, <b>.", "Yes."), ReasoningExample("Yes.", "", "Yes.")],
    "deepseek_r1": [
        ReasoningExample(THINKING, "Hm, <b>.", "Yes."),
        ReasoningExample("Hm.\n</think>\n\nYes.", "Hm.", "Yes."),
    ],
    "mistral": [ReasoningExample("[THINK]Hm [1].[/THINK]Oui.", "Hm [1].", "Oui.")],
    "gpt_oss": [ReasoningExample(text, *parts) for text, parts in test_harmony.REASONING.items()],
}


def bundled(kind: str) -> list[Entry]:
    return [entry for entry in load_plugins().registry.entries(kind) if entry.distribution == DISTRIBUTION]


class TestBundledToolParsers(ToolParserTests):
    @pytest.fixture(params=bundled("tool_parser"), ids=lambda entry: entry.name)
    def entry(self, request: pytest.FixtureRequest) -> Entry:
        entry: Entry = request.param
        return entry

    @pytest.fixture
    def parser(self, entry: Entry) -> type[ToolParser]:
        return entry.load()

    @pytest.fixture
    def examples(self, entry: Entry) -> Sequence[ToolExample]:
        return [ToolExample(text, calls, content) for text, (content, calls) in CALLS[entry.name].items()]

    @pytest.fixture
    def tools(self) -> Sequence[Mapping[str, Any]]:
        return TOOLS

    def test_each_parser_streams_arguments(self, streams_arguments: bool) -> None:
        assert streams_arguments


class TestBundledReasoningParsers(ReasoningParserTests):
    @pytest.fixture(params=bundled("reasoning_parser"), ids=lambda entry: entry.name)
    def entry(self, request: pytest.FixtureRequest) -> Entry:
        entry: Entry = request.param
        return entry

    @pytest.fixture
    def parser(self, entry: Entry) -> type[ReasoningParser]:
        return entry.load()

    @pytest.fixture
    def examples(self, entry: Entry) -> Sequence[ReasoningExample]:
        return THOUGHTS[entry.name]


@pytest.mark.parametrize("entry", bundled("tool_parser"), ids=lambda entry: entry.name)
def test_each_tool_parser_declares_examples(entry: Entry) -> None:
    parser = entry.load()
    found: Sequence[Any] = declared(parser, "examples", ())
    examples = [ToolExample(*example) for example in found]
    assert any(example.calls and example.content for example in examples) or entry.name == "json_calls"
    ToolParserTests().test_the_calls_of_the_examples_are_found(parser, examples, tools_of(examples))


@pytest.mark.parametrize("entry", bundled("reasoning_parser"), ids=lambda entry: entry.name)
def test_each_reasoning_parser_declares_examples(entry: Entry) -> None:
    parser = entry.load()
    found: Sequence[Any] = declared(parser, "examples", ())
    examples = [ReasoningExample(*example) for example in found]
    assert any(example.reasoning and example.content for example in examples)
    ReasoningParserTests().test_the_examples_are_split_correctly(parser, examples)
