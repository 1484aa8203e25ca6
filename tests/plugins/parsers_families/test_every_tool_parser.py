"""What all tool parsers of this plugin promise beyond the tests of the interface, whatever the family."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfw.core.interfaces.parsers import ToolParser
from llmfw.core.testing.parsing import cut
from llmfw.core.testing.tool_parsers import arguments_texts, names
from llmfw.plugins.parsers_families.deepseek import DeepSeekV3ToolParser, DeepSeekV31ToolParser
from llmfw.plugins.parsers_families.harmony import GptOssToolParser
from llmfw.plugins.parsers_families.hermes import HermesToolParser
from llmfw.plugins.parsers_families.json_calls import JsonCallsToolParser
from llmfw.plugins.parsers_families.llama3_json import Llama3JsonToolParser
from llmfw.plugins.parsers_families.mistral import MistralToolParser
from llmfw.plugins.parsers_families.pythonic import PythonicToolParser
from llmfw.plugins.parsers_families.qwen3_coder import Qwen3CoderToolParser

from ...length import of_length
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
from .parsing import TOOLS, parse, tool

FAMILIES: dict[type[ToolParser], list[str]] = {
    HermesToolParser: list(test_hermes.SAMPLES),
    Llama3JsonToolParser: list(test_llama3_json.SAMPLES),
    JsonCallsToolParser: list(test_json_calls.SAMPLES),
    PythonicToolParser: list(test_pythonic.SAMPLES),
    MistralToolParser: list(test_mistral.SAMPLES),
    DeepSeekV3ToolParser: list(test_deepseek.V3_SAMPLES),
    DeepSeekV31ToolParser: list(test_deepseek.V31_SAMPLES),
    GptOssToolParser: list(test_harmony.SAMPLES),
    Qwen3CoderToolParser: list(test_qwen3_coder.SAMPLES),
}
WITH_FORMAT = [parser for parser in FAMILIES if parser.call_format is not None]


@pytest.mark.parametrize("family", FAMILIES)
def test_without_tools_text_is_returned(family: type[ToolParser]) -> None:
    assert all(parse(family([]), text) == (text, []) for text in FAMILIES[family])


@pytest.mark.parametrize("family", WITH_FORMAT)
@settings(deadline=None, max_examples=of_length(10, 30))
@given(
    calls=st.lists(st.tuples(names, arguments_texts), min_size=1, max_size=4),
    places=st.lists(st.integers(0, 500)),
)
def test_the_parser_reads_its_call_format(
    family: type[ToolParser], calls: list[tuple[str, str]], places: list[int]
) -> None:
    form = family.call_format
    assert form is not None
    assert form.begin.startswith(form.trigger)
    written = [form.begin.replace("{name}", name) + arguments + form.end for name, arguments in calls]
    text = form.before + form.between.join(written) + form.after
    tools: list[dict[str, Any]] = [tool(name) for name, _ in calls]
    assert parse(family(tools), *cut(text, places)) == ("", calls)


@pytest.mark.parametrize("family", WITH_FORMAT)
def test_arguments_are_streamed_before_completion(family: type[ToolParser]) -> None:
    form = family.call_format
    assert form is not None
    text = form.before + form.begin.replace("{name}", "run") + '{"code": "x = '
    [first, *more] = family(TOOLS).feed(text)
    assert (first.name, first.arguments) == ("run", "")  # type: ignore[union-attr]
    assert "".join(delta.arguments for delta in more) == '{"code": "x = '  # type: ignore[union-attr]
