"""The helpers of OpenAI's SDK that are stricter than its plain calls: `.parse()` and `.stream()`, with a real model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pydantic
import pytest

from ..doubles.serving import Served
from .wire_calls import WEATHER

MESSAGES: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
SEED = 3


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=99)
    mood: Literal["good", "bad"]


PERSON: Any = {
    "model": "demo",
    "input": "Tell me of a person.",
    "text_format": Person,
    "extra_body": {"thinking_budget": 20},  # the demo model may think for a thousand tokens
}


@pytest.fixture(scope="module")
def sdk(demo_server: Served) -> Iterator[openai.OpenAI]:
    with demo_server.openai() as client:
        yield client


def test_parse_returns_a_pydantic_model(sdk: openai.OpenAI) -> None:
    reply = sdk.chat.completions.parse(model="demo", messages=MESSAGES, response_format=Person, seed=SEED)
    person = reply.choices[0].message.parsed
    assert isinstance(person, Person)
    assert reply.choices[0].finish_reason == "stop"


def test_parsing_a_truncated_reply_raises(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        sdk.chat.completions.parse(
            model="demo", messages=MESSAGES, response_format=Person, max_completion_tokens=3, seed=SEED
        )


def test_a_streamed_schema_is_parsed(sdk: openai.OpenAI) -> None:
    with sdk.chat.completions.stream(
        model="demo", messages=MESSAGES, response_format=Person, seed=SEED, n=2
    ) as stream:
        kinds = {event.type for event in stream}
        choices = stream.get_final_completion().choices
    assert "content.delta" in kinds
    assert len(choices) == 2
    assert all(isinstance(choice.message.parsed, Person) for choice in choices)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_streamed_calls_fit_the_sdk_s_accumulator(sdk: openai.OpenAI, choice: Any) -> None:
    tools: Any = [openai.pydantic_function_tool(City, name="get_weather")]
    with sdk.chat.completions.stream(
        model="demo", messages=MESSAGES, tools=tools, tool_choice=choice, seed=SEED
    ) as stream:
        kinds = [event.type for event in stream]
        [final] = stream.get_final_completion().choices
    assert "tool_calls.function.arguments.done" in kinds
    calls = final.message.tool_calls or []
    assert [call.function.name for call in calls] == ["get_weather"] * len(calls)
    assert all(isinstance(call.function.parsed_arguments, City) for call in calls)
    assert calls


class City(pydantic.BaseModel):
    city: str = pydantic.Field(max_length=20)


def test_a_tool_result_starts_a_second_turn(sdk: openai.OpenAI) -> None:
    tools: Any = [WEATHER]
    first = sdk.chat.completions.create(
        model="demo", messages=MESSAGES, tools=tools, tool_choice="required", parallel_tool_calls=False
    )
    message = first.choices[0].message
    assert message.tool_calls
    assert json.loads(message.tool_calls[0].function.arguments).keys() == {"city"}
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "22 degrees"}
    second = sdk.chat.completions.create(
        model="demo", messages=[*MESSAGES, message, result], tools=tools, tool_choice="none"
    )
    assert second.choices[0].message.content
    assert second.choices[0].message.tool_calls is None


def test_a_streamed_response_is_accepted(sdk: openai.OpenAI) -> None:
    with sdk.responses.stream(model="demo", input="What is the capital of France?") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == text
    assert text


def test_a_streamed_response_with_a_schema_is_parsed(sdk: openai.OpenAI) -> None:
    with sdk.responses.stream(**PERSON) as stream:
        final = stream.until_done().get_final_response()
    assert isinstance(final.output_parsed, Person)


def test_a_response_is_parsed(sdk: openai.OpenAI) -> None:
    reply = sdk.responses.parse(**PERSON)
    assert isinstance(reply.output_parsed, Person)


def test_a_response_s_function_is_called_and_answered(sdk: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", "strict": True, **WEATHER["function"]}]
    first = sdk.responses.create(
        model="demo", input="What is the weather in Paris?", tools=tools, tool_choice="required"
    )
    [call, *_] = [item for item in first.output if item.type == "function_call"]
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "22 degrees"}
    second = sdk.responses.create(model="demo", input=[output], previous_response_id=first.id)
    assert second.output_text
