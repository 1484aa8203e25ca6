"""The Responses API by the OpenAI SDK: replies, tools, conversations, and what becomes of each field."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import BaseModel, TypeAdapter

from llmfw.core.interfaces.parsers import CallFormat
from llmfw.plugins.parsers_families.hermes import HermesToolParser

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import MARKERS, SERVED_NAME, Served, byte_tokenizer, serving

WEATHER: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>'
TRANSCRIPT = (
    "{% for m in messages %}{{ m.role }}:{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
    "{{ m.content }}{% for c in m.tool_calls %}[{{ c.function.name }} {{ c.function.arguments.city }}]{% endfor %}"
    "|{% endfor %}"
)
"""A chat template that makes the echo engine answer with the whole conversation."""


class Step(BaseModel):
    answer: int


def create(sdk: openai.OpenAI, input: Any, **fields: Any) -> Any:
    return sdk.responses.create(model=SERVED_NAME, input=input, **fields)


@pytest.fixture(scope="module")
def transcript(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with serving(EchoEngine(), tokenizer, TRANSCRIPT) as served, served.openai() as client:
        yield client


def test_a_reply_has_the_sdk_s_fields(server: Served) -> None:
    reply = server.post("/v1/responses", {"input": "hello", "metadata": {"a": "b"}}).json()
    response = TypeAdapter(Response).validate_python(reply)
    assert (response.output_text, response.status, response.metadata) == ("hello", "completed", {"a": "b"})
    required = {name for name, field in Response.model_fields.items() if field.is_required()}
    nullable = {
        "error",
        "incomplete_details",
        "instructions",
        "temperature",
        "top_p",
        "usage",
        "text",
        "reasoning",
    }
    assert required | nullable <= reply.keys()


def test_usage_counts_cached_and_reasoning_tokens(sdk: openai.OpenAI) -> None:
    for _ in range(2):
        usage = create(sdk, "<think>cached twice</think>yes").usage
    assert usage.input_tokens_details.cached_tokens == usage.input_tokens - 1
    assert 0 < usage.output_tokens_details.reasoning_tokens < usage.output_tokens
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


def test_reasoning_text_and_calls_are_separate_items(sdk: openai.OpenAI) -> None:
    reply = create(sdk, f"<think>hm</think>Look: {CALL}", tools=[WEATHER])
    reasoning, message, call = reply.output
    assert reasoning.content[0].text == "hm"
    assert message.content[0].text == "Look:"
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Oslo"})
    assert call.id.startswith("fc_")
    assert call.call_id.startswith("call_")
    assert len({item.id for item in reply.output}) == 3


@pytest.mark.parametrize(
    ("fields", "num_top"),
    [({"top_logprobs": 2}, 2), ({"include": ["message.output_text.logprobs"]}, 0)],
    ids=["top", "include"],
)
def test_the_answer_s_tokens_have_log_probabilities(
    sdk: openai.OpenAI, fields: dict[str, Any], num_top: int
) -> None:
    reply = create(sdk, f"<think>hm</think>Größe {CALL}", tools=[WEATHER], **fields)
    [message] = [item for item in reply.output if item.type == "message"]
    entries = message.content[0].logprobs
    assert b"".join(bytes(entry.bytes) for entry in entries).decode().strip() == "Größe"
    assert all(len(entry.top_logprobs) == num_top and entry.logprob < 0 for entry in entries)
    assert reply.top_logprobs == num_top
    assert sdk.responses.retrieve(reply.id).to_dict() == reply.to_dict()


def test_max_output_tokens_is_exact_and_ends_incomplete(sdk: openai.OpenAI) -> None:
    reply = create(sdk, "hello", max_output_tokens=3)
    assert reply.usage.output_tokens == 3
    assert (reply.status, reply.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (reply.output_text, reply.output[0].status, reply.completed_at) == ("hel", "incomplete", None)


def test_sampling_fields_reach_the_engine(server: Served) -> None:
    server.post(
        "/v1/responses", {"input": "x", "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 7, "seed": 4}
    )
    sampling = server.engine.requests[-1].sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens, sampling.seed) == (0.5, 0.9, 7, 4)


def test_structured_output_is_enforced_and_parsed(server: Served, sdk: openai.OpenAI) -> None:
    reply = sdk.responses.parse(model=SERVED_NAME, input='{"answer": 4}', text_format=Step)
    assert reply.output_parsed == Step(answer=4)
    grammar = server.engine.requests[-1].grammar
    assert (grammar.kind, json.loads(grammar.source)["required"]) == ("json_schema", ["answer"])
    assert reply.text.format.type == "json_schema"


class HeldParser(HermesToolParser):
    call_format = CallFormat(
        begin='<tool_call>{"name": "{name}", "arguments": ', end="}</tool_call>", trigger="<tool_call>"
    )


def test_a_required_tool_becomes_a_grammar(tmp_path: Path) -> None:
    body = {"input": CALL, "tools": [WEATHER], "tool_choice": {"type": "function", "name": "weather"}}
    with serving(EchoEngine(), byte_tokenizer(tmp_path, MARKERS), tool_parser=HeldParser) as served:
        reply = served.post("/v1/responses", body).json()
    grammar = served.engine.requests[-1].grammar
    assert grammar is not None
    assert "weather" in grammar.source
    assert (reply["tool_choice"], reply["output"][0]["type"]) == (body["tool_choice"], "function_call")


def test_tool_results_are_sent_after_their_call(transcript: openai.OpenAI) -> None:
    first = create(transcript, f"<think>hm</think>{CALL}", tools=[WEATHER])
    call = next(item for item in first.output if item.type == "function_call")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    by_id = create(transcript, [result], previous_response_id=first.id)
    by_items = create(transcript, [{"role": "user", "content": "go"}, *first.output, result])
    for reply in (by_id, by_items):
        assert "</think>[weather Oslo]|" in reply.output_text
        assert reply.output_text.endswith("|tool:rain|")


def test_returned_reasoning_reaches_the_template(transcript: openai.OpenAI) -> None:
    items = [
        {"role": "user", "content": "1+1"},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "add"}],
        },
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "and?"},
    ]
    assert create(transcript, items).output_text == "user:1+1|assistant:(add)2|user:and?|"


def test_continuing_drops_the_earlier_instructions(transcript: openai.OpenAI) -> None:
    first = create(transcript, "a", instructions="be brief")
    second = create(transcript, "b", previous_response_id=first.id, instructions="be kind")
    assert first.output_text == "system:be brief|user:a|"
    assert second.output_text == f"system:be kind|user:a|assistant:{first.output_text}|user:b|"
    assert second.previous_response_id == first.id


def test_an_item_is_found_by_its_id(transcript: openai.OpenAI) -> None:
    first = create(transcript, "a")
    again = create(
        transcript, [{"type": "item_reference", "id": first.output[0].id}, {"id": first.output[0].id}]
    )
    assert again.output_text == 2 * f"assistant:{first.output_text}|"
    with pytest.raises(openai.BadRequestError) as caught:
        create(transcript, [{"type": "item_reference", "id": "msg_0"}])
    assert caught.value.param == "input[0].id"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"type": ["x"]}]}, "input[0].type"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": ""}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
        (
            {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "g"}]},
            "input[0].encrypted_content",
        ),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 9999}, "max_output_tokens"),
        ({"input": ""}, "input"),
        ({"input": "x" * 1000}, None),
        ({"temperature": -1}, "temperature"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice.type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name"),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": 5}}},
            "text.format.strict",
        ),
        ({"guided_json": {}}, "guided_json"),
        ({"regex": "a+"}, "regex"),
        ({"include": ["dreams"]}, "include[0]"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"truncation": "middle"}, "truncation"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"metadata": {str(i): "v" for i in range(17)}}, "metadata"),
        ({"previous_response_id": "resp_0"}, "previous_response_id"),
        ({"background": True, "store": False}, "store"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options"),
        ({"model": "gpt"}, "model"),
    ],
)
def test_a_wrong_value_is_named(server: Served, fields: dict[str, Any], param: str) -> None:
    reply = server.post("/v1/responses", {"input": "x", **fields})
    assert reply.status_code == (404 if "model" in fields else 400)
    error = reply.json()["error"]
    assert error["param"] == param
    assert param is None or param in error["message"]


HONORED = {
    "background", "include", "input", "instructions", "max_output_tokens", "metadata", "model", "parallel_tool_calls",
    "previous_response_id", "reasoning", "safety_identifier", "store", "stream", "stream_options", "temperature", "text", "tool_choice",
    "tools", "top_logprobs", "top_p", "truncation", "user",
}  # fmt: skip
REFUSED: dict[str, Any] = {
    "context_management": [{"type": "compaction"}],
    "conversation": "conv_1",
    "max_tool_calls": 2,
    "moderation": {"model": "m"},
    "prompt": {"id": "p"},
}
REPORTED: dict[str, Any] = {
    "access_programs": {"cyber": "standard"},
    "image": {"context_compression": "auto"},
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "implicit"},
    "prompt_cache_retention": "24h",
    "service_tier": "auto",
}


def test_every_sdk_field_is_handled(server: Served) -> None:
    """It is honored, refused by name or reported."""
    known = typing.get_type_hints(ResponseCreateParamsNonStreaming) | typing.get_type_hints(
        ResponseCreateParamsStreaming
    )
    assert set(known) == HONORED | set(REFUSED) | set(REPORTED)
    for name, value in REFUSED.items():
        error = server.post("/v1/responses", {"input": "x", name: value}).json()["error"]
        assert (error["param"], error["code"]) == (name, "unsupported_parameter")
    for name, value in REPORTED.items():
        reply = server.post("/v1/responses", {"input": "x", name: value})
        assert (reply.status_code, reply.headers["llmfw-ignored-params"]) == (200, name)


def test_nested_ignored_fields_are_reported(server: Served) -> None:
    body = {
        "input": "x",
        "text": {"verbosity": "low"},
        "reasoning": {"summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "tools": [{**WEATHER, "output_schema": {}}],
    }
    header = server.post("/v1/responses", body).headers["llmfw-ignored-params"]
    expected = (
        "include[reasoning.encrypted_content], reasoning.summary, text.verbosity, tools[0].output_schema"
    )
    assert header == expected
