"""The demo model, the real engine and the real grammar backend: what a chat asks for is what comes."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

from ..doubles.serving import Served
from ..length import also_each

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK: Any = {"type": "function", "function": {"name": "get_time"}}
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}


def answer(server: Served, text: str, **fields: Any) -> Any:
    reply = server.chat(text, max_tokens=200, temperature=1.0, seed=5, **fields)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]


@pytest.mark.parametrize("more", [{}, THINKING], ids=["", "thinking"])
def test_content_follows_the_schema(demo_server: Served, more: Any) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    choice = answer(demo_server, "Who are you?", response_format=form, **more)
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)


def test_choices_and_regexes_are_enforced(demo_server: Served) -> None:
    assert answer(demo_server, "Yes?", choice=["red", "green"])["message"]["content"] in ("red", "green")
    reply = demo_server.post("/v1/completions", {"prompt": "A number:", "regex": "[0-9]{3}", "max_tokens": 9})
    assert re.fullmatch("[0-9]{3}", reply.json()["choices"][0]["text"])


@pytest.mark.parametrize("more", [{}, THINKING], ids=["", "thinking"])
@pytest.mark.parametrize("stream", [False, True])
def test_required_calls_are_returned(demo_server: Served, more: Any, stream: bool) -> None:
    fields = {"tools": [WEATHER, CLOCK], "tool_choice": "required", "parallel_tool_calls": False, **more}
    if stream:
        text = demo_server.chat("Tell me a story.", max_tokens=200, seed=5, stream=True, **fields).text
        assert '"finish_reason":"tool_calls"' in text
        return
    choice = answer(demo_server, "Tell me a story.", **fields)
    [call] = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert call["function"]["name"] in ("get_weather", "get_time")


def test_a_named_call_follows_its_schema(demo_server: Served) -> None:
    choice = answer(
        demo_server,
        "Tell me a story.",
        tools=[WEATHER, CLOCK],
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
    )
    [call] = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(call["function"]["arguments"]), WEATHER["function"]["parameters"])


def test_strict_tools_and_response_formats_hold_under_auto(demo_server: Served) -> None:
    strict = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}
    assert answer(demo_server, "What is the weather in Rome?", tools=[strict])["message"]
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    message = answer(demo_server, "Who are you?", tools=[WEATHER], response_format=form)["message"]
    if message.get("tool_calls"):
        assert message["content"] is None
    else:
        jsonschema.validate(json.loads(message["content"]), SCHEMA)


def test_a_thinking_budget_ends_the_thinking(demo_server: Served) -> None:
    for budget in (0, 3):
        reply = demo_server.chat(
            "What is 12 plus 30?", thinking_budget=budget, max_tokens=100, temperature=0, **THINKING
        ).json()
        used = reply["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert used <= budget + 2  # the markers
        assert reply["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"regex": "("}, "regex"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": 5}}}},
            "response_format.json_schema.schema",
        ),
        ({"ebnf": "root ::= ("}, "ebnf"),
    ],
)
def test_impossible_constraints_name_the_field(demo_server: Served, fields: Any, param: str) -> None:
    reply = demo_server.chat("Hi", **fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_an_impossible_response_format_is_refused_with_tools(
    demo_server: Served,
) -> None:
    broken = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nonsense"}}}
    reply = demo_server.chat("Hi", tools=[CLOCK], tool_choice="required", response_format=broken)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "response_format.json_schema.schema"


TEXT, ARRAY, ANY = {"type": "string", "minLength": 200}, {"type": "array", "minItems": 3}, dict[str, Any]()
LOGPROBS, STOP = {"logprobs": True}, {"stop": ["}}}}}"]}


@pytest.mark.long
@pytest.mark.parametrize(
    ("schema", "more"),
    [
        *((TEXT, {}), (ARRAY, {}), (ANY, {}), (TEXT, LOGPROBS), (ARRAY, STOP)),
        *also_each((ARRAY, LOGPROBS), (ANY, LOGPROBS), (TEXT, STOP), (ANY, STOP)),
    ],
)
def test_json_is_complete_at_max_tokens(demo_server: Served, schema: Any, more: Any) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    limits: dict[str, Any] = {"max_tokens": 150, "temperature": 2.0, "logit_bias": {"2": -100, "0": -100}}
    reply = demo_server.chat("Go on for ever.", response_format=form, seed=5, **limits, **more).json()
    choice = reply["choices"][0]
    jsonschema.validate(json.loads(choice["message"]["content"]), schema)
    assert choice["finish_reason"] in ("stop", "length")
    assert reply["usage"]["completion_tokens"] <= 150
    if reply["usage"]["completion_tokens"] > 132:
        assert choice["finish_reason"] == "length"
