"""Calls that have to be made come in each family's own form, markers that are special tokens included, and are read.

The model is one that knows nothing and draws evenly among the allowed tokens; the grammars and parsers are the real ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tokenizers

from llmfw.api.text.grammar_check import GrammarChecker
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.plugin.plugins import load_plugins
from llmfw.plugins.parsers_families import deepseek, harmony, mistral
from llmfw.plugins.parsers_families.hermes import HermesToolParser
from llmfw.plugins.parsers_families.json_calls import JsonCallsToolParser
from llmfw.plugins.parsers_families.qwen3_reasoning import Qwen3ReasoningParser

from ..doubles.echo_engine import VOCAB_SIZE
from ..doubles.serving import MARKERS, Served, byte_tokenizer, serving
from ..doubles.walk_engine import WalkEngine
from ..length import of_length

HARMONY = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>")
DEEPSEEK = (
    *("<｜end▁of▁sentence｜>", "<think>", "</think>"),
    *(deepseek.CALLS, deepseek.CALLS_END, deepseek.CALL, deepseek.CALL_END, deepseek.SEPARATOR),
)
MISTRAL = ("</s>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]")
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"enum": [1, 2, 3]}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
STRICT = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}
NOW: Any = {
    "type": "function",
    "function": {"name": "now", "parameters": {"type": "object", "additionalProperties": False}},
}
SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in (WEATHER, NOW)}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def special_tokenizer(folder: Path, special: Sequence[str], ends: Sequence[str]) -> Tokenizer:
    """Return a tokenizer of bytes and special tokens, some of which end an output."""
    tokenizer = byte_tokenizer(folder, special)
    added = [
        tokenizers.AddedToken(text, normalized=False, special=True) for text in special if text not in MARKERS
    ]
    tokenizer._backend.add_special_tokens(added)
    tokenizer.eos_token_ids = tuple(tokenizer.added_tokens()[end] for end in ends)
    return tokenizer


@contextmanager
def walking(
    folder: Path, special: Sequence[str], ends: Sequence[str], reasoning: Any, tools: Any
) -> Iterator[Served]:
    tokenizer = special_tokenizer(folder, special, ends)
    entry = load_plugins().registry.find("grammar", "llguidance")
    with serving(
        WalkEngine(tokenizer),
        tokenizer,
        grammar_checker=GrammarChecker(entry, tokenizer, VOCAB_SIZE),
        reasoning_parser=reasoning,
        tool_parser=tools,
        json_tool_parser=JsonCallsToolParser,
    ) as served:
        yield served


FAMILIES: dict[str, Any] = {
    "qwen3": (("<|im_end|>", *MARKERS), ("<|im_end|>",), Qwen3ReasoningParser, HermesToolParser),
    "gpt_oss": (
        HARMONY,
        ("<|return|>", "<|call|>"),
        harmony.GptOssReasoningParser,
        harmony.GptOssToolParser,
    ),
    "gpt_oss_one_end": (
        HARMONY,
        ("<|return|>",),
        harmony.GptOssReasoningParser,
        harmony.GptOssToolParser,
    ),
    "gpt_oss_no_thinking": (HARMONY, ("<|return|>", "<|call|>"), None, harmony.GptOssToolParser),
    "deepseek_v3": (DEEPSEEK, DEEPSEEK[:1], None, deepseek.DeepSeekV3ToolParser),
    "deepseek_r1": (
        DEEPSEEK,
        DEEPSEEK[:1],
        deepseek.DeepSeekR1ReasoningParser,
        deepseek.DeepSeekV3ToolParser,
    ),
    "deepseek_v31": (DEEPSEEK, DEEPSEEK[:1], None, deepseek.DeepSeekV31ToolParser),
    "mistral": (MISTRAL, MISTRAL[:1], None, mistral.MistralToolParser),
    "magistral": (MISTRAL, MISTRAL[:1], mistral.MistralReasoningParser, mistral.MistralToolParser),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with walking(tmp_path_factory.mktemp(request.param), *FAMILIES[request.param]) as served:
        yield served


def choices(served: Served, **fields: Any) -> list[Any]:
    fields = {"n": of_length(4, 10), "seed": 3, "max_tokens": 400} | fields
    reply = served.chat("Hi", tools=[WEATHER, NOW], **fields)
    assert reply.status_code == 200, reply.text
    return list(reply.json()["choices"])


def check_calls(calls: Sequence[Any]) -> None:
    for call in calls:
        jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMAS[call["function"]["name"]])


@pytest.mark.long
@pytest.mark.parametrize("fields", [{}, {"parallel_tool_calls": False}], ids=["", "one"])
def test_required_calls_follow_their_schemas(family: Served, fields: Any) -> None:
    for choice in choices(family, tool_choice="required", **fields):
        calls = choice["message"]["tool_calls"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
        assert len(calls) == 1 or not fields
        check_calls(calls)


def test_a_named_call_is_returned(family: Served) -> None:
    for choice in choices(family, tool_choice=NAMED, n=of_length(2, 10)):
        [call] = choice["message"]["tool_calls"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (None, "stop")
        assert call["function"]["name"] == "get_weather"
        check_calls([call])


def test_a_stream_has_the_same_calls(family: Served) -> None:
    fields = {"tool_choice": "required", "tools": [WEATHER, NOW], "seed": 3, "max_tokens": 400}
    whole = family.chat("Hi", **fields).json()["choices"][0]["message"]["tool_calls"]
    lines = family.chat("Hi", stream=True, **fields).text.splitlines()
    data = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    deltas = [call for chunk in data for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    for i, call in enumerate(whole):
        pieces = [delta["function"] for delta in deltas if delta["index"] == i]
        assert "".join(piece.get("arguments", "") for piece in pieces) == call["function"]["arguments"]
        assert pieces[0]["name"] == call["function"]["name"]
    assert {delta["index"] for delta in deltas} == set(range(len(whole)))


def test_strict_calls_under_auto_follow_their_schemas(family: Served) -> None:
    added = family.tokenizer.added_tokens()
    openings = ("<tool_call>", "<|channel|>", deepseek.CALLS, mistral.CALLS)
    likely = [added[text] for text in openings if text in added]
    bias = {str(token): 100 for token in (*likely, *family.tokenizer.eos_token_ids)}
    reply = family.chat("Hi", tools=[STRICT], n=20, seed=3, max_tokens=200, logit_bias=bias).json()
    ended = [choice["message"] for choice in reply["choices"] if choice["finish_reason"] == "tool_calls"]
    assert ended
    for message in ended:
        check_calls(message["tool_calls"])


@pytest.fixture(scope="module")
def gpt_oss(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with walking(tmp_path_factory.mktemp("gpt_oss"), *FAMILIES["gpt_oss"]) as served:
        yield served


def test_gpt_oss_thinks_before_a_call(gpt_oss: Served) -> None:
    thoughts = [
        choice["message"]["reasoning_content"] or "" for choice in choices(gpt_oss, tool_choice="required")
    ]
    assert any(thoughts)
    assert all(thought.isalpha() for thought in thoughts if thought)


def test_gpt_oss_answers_by_a_schema_or_calls(gpt_oss: Served) -> None:
    schema = {"enum": [{"a": 1}, {"b": 2}]}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    found = set()
    reply = gpt_oss.chat("Hi", tools=[STRICT], response_format=form, n=10, seed=3).json()
    for choice in reply["choices"]:
        message = choice["message"]
        found.add(choice["finish_reason"])
        if choice["finish_reason"] == "tool_calls":
            check_calls(message["tool_calls"])
        else:
            jsonschema.validate(json.loads(message["content"]), schema)
    assert found == {"stop", "tool_calls"}


def test_gpt_oss_text_comes_from_the_final_channel(gpt_oss: Served) -> None:
    reply = gpt_oss.chat("Hi", tools=[STRICT], n=20, seed=3, max_tokens=300).json()
    ended = [choice for choice in reply["choices"] if choice["finish_reason"] != "length"]
    assert {choice["finish_reason"] for choice in ended} == {"stop", "tool_calls"}
    assert not any("<|" in (choice["message"]["content"] or "") for choice in ended)


def test_a_budget_closes_gpt_oss_thinking_before_calls(gpt_oss: Served) -> None:
    for choice in choices(gpt_oss, tool_choice="required", thinking_budget=2):
        assert len(choice["message"]["reasoning_content"] or "") <= 2
        check_calls(choice["message"]["tool_calls"])
