"""A Responses body becomes a chat, or is refused; nothing that a client can send is a surprise."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib._parsing._responses import type_to_text_format_param

from llmfw.api.responses.ids import item_id, new_response_id, response_of
from llmfw.api.responses.items import check_items, messages_of
from llmfw.api.responses.request import chat_fields, decode_request, renamed
from llmfw.core.base.errors import RequestError


def fields_of(**body: Any) -> dict[str, Any]:
    request, _ = decode_request(msgspec.json.encode({"input": "x", **body}))
    return chat_fields(request, [])


def items_of(given: Any) -> list[dict[str, Any]]:
    return check_items(given, lambda i, prefix: f"{prefix}_{i}")


class Step(pydantic.BaseModel):
    answer: int


def test_the_text_format_becomes_a_response_format() -> None:
    form: Any = type_to_text_format_param(Step)
    assert fields_of(text={"format": form})["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": form["name"], "schema": form["schema"], "strict": True},
    }
    assert fields_of(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}
    assert "response_format" not in fields_of(text={"format": {"type": "text"}})


def test_tools_and_choices_convert_to_chat_form() -> None:
    tool = {"type": "function", "name": "f", "parameters": {}, "strict": True, "description": "d"}
    inner = {"name": "f", "parameters": {}, "strict": True, "description": "d"}
    assert fields_of(tools=[tool])["tools"] == [{"type": "function", "function": inner}]
    named = {"type": "function", "function": {"name": "f"}}
    assert fields_of(tool_choice={"type": "function", "name": "f"})["tool_choice"] == named
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}
    assert fields_of(tool_choice=allowed)["tool_choice"] == {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [named]},
    }


def test_sampling_fields_convert_to_chat_names() -> None:
    fields = fields_of(reasoning={"effort": "low"}, max_output_tokens=5, top_k=3, parallel_tool_calls=False)
    del fields["messages"]
    assert fields == {
        "reasoning_effort": "low",
        "max_completion_tokens": 5,
        "top_k": 3,
        "parallel_tool_calls": False,
    }


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("max_completion_tokens", "max_output_tokens"),
        ("messages[3].content", "input"),
        ("tools[2].function.name", "tools[2].name"),
        ("response_format.json_schema.schema", "text.format.schema"),
        ("reasoning_effort", "reasoning.effort"),
        ("tool_choice.function.name", "tool_choice.name"),
        ("seed", "seed"),
    ],
)
def test_a_chat_error_names_the_response_s_field(theirs: str, ours: str) -> None:
    error = renamed(RequestError(f"{theirs} is wrong", param=theirs, code="c"))
    assert (str(error), error.param, error.code) == (f"{ours} is wrong", ours, "c")


def test_consecutive_model_items_are_one_message() -> None:
    call = {"type": "function_call", "name": "f", "arguments": "{}"}
    items = items_of(
        [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "r"}]},
            {"role": "assistant", "content": "a"},
            {**call, "call_id": "1"},
            {**call, "call_id": "2"},
            {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "o"}]},
            {"role": "assistant", "content": "b"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        ]
    )
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in "12"]
    assert messages_of(items) == [
        {"role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "o", "name": "f"},
        {"role": "assistant", "content": "b"},
        {"role": "assistant", "content": "no"},
    ]


def test_completed_items_stay_unchanged() -> None:
    items = items_of("x")
    assert items_of(items) == items
    assert items[0]["id"] == "msg_0"
    assert items_of([{**items[0], "id": "msg_mine"}])[0]["id"] == "msg_mine"


def test_an_item_s_id_contains_its_response() -> None:
    response_id = new_response_id()
    assert response_of(item_id("msg", response_id, "o", 12)) == response_id
    assert response_of("msg_of_someone_else") is None


keys = st.sampled_from(
    [
        "type",
        "role",
        "content",
        "text",
        "id",
        "call_id",
        "name",
        "arguments",
        "output",
        "summary",
        "status",
        "refusal",
    ]
)
KINDS = "message function_call function_call_output reasoning item_reference input_text output_text refusal"
words = st.sampled_from([*KINDS.split(), "user", "assistant", "x", ""])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
fields = st.sampled_from(
    ["input", "tools", "text", "tool_choice", "include", "metadata", "reasoning", "instructions"]
)


@given(st.lists(st.dictionaries(keys, values, max_size=5), max_size=4))
def test_any_items_are_converted_or_refused(given: list[dict[str, Any]]) -> None:
    with suppress(RequestError):
        items = items_of(given)
        assert items_of(json.loads(json.dumps(items))) == items
        assert len(messages_of(items)) <= len(items)


@given(st.dictionaries(fields, values))
def test_any_body_is_converted_or_refused(body: dict[str, Any]) -> None:
    with suppress(RequestError):
        fields_of(**body)
