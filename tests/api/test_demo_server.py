"""The seeds' calls by the OpenAI SDK, answered by the real engine and the demo model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ..doubles.serving import SERVED_NAME, serving

ROOT = Path(__file__).parents[2]
CAPITALS: Any = [{"role": "user", "content": "List 3 countries and their capitals."}]


@pytest.fixture(scope="module")
def sdk() -> Iterator[openai.OpenAI]:
    registry = load_plugins().registry
    path = resolve_model("demo", registry).path
    engine = build_generation_engine(
        EngineConfig(model=path, dtype="float32", max_total_tokens=8192), registry
    )
    tokenizer = load_tokenizer(path)
    with serving(engine, tokenizer, tokenizer.chat_template) as served, served.openai() as client:
        yield client


def test_a_chat_answers_in_words(sdk: openai.OpenAI) -> None:
    reply = sdk.chat.completions.create(model=SERVED_NAME, messages=CAPITALS, temperature=0, max_tokens=64)
    assert "capitals" in (reply.choices[0].message.content or "")
    assert reply.choices[0].finish_reason == "stop"


def test_a_stream_gives_the_same_answer(sdk: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"model": SERVED_NAME, "messages": CAPITALS, "temperature": 0}
    whole = sdk.chat.completions.create(**fields).choices[0].message.content
    chunks = sdk.chat.completions.create(**fields, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole


def test_the_seed_notebook_s_completion_is_answered(sdk: openai.OpenAI) -> None:
    reply = sdk.completions.create(
        model=SERVED_NAME,
        prompt="Write a short story about a space explorer.",
        temperature=0.7,
        max_tokens=150,
        top_p=0.9,
        stop=["\n\n", "THE END"],
        presence_penalty=0.3,
        frequency_penalty=0.3,
        n=1,
        seed=123,
    )
    assert reply.choices[0].finish_reason in ("stop", "length")
    assert reply.usage is not None
    assert 1 <= reply.usage.completion_tokens <= 150
    assert "\n\n" not in reply.choices[0].text


def test_a_seed_gives_equal_text_under_load(sdk: openai.OpenAI) -> None:
    def sample(seed: int) -> str:
        reply = sdk.completions.create(model=SERVED_NAME, prompt="Once", seed=seed, max_tokens=24)
        return reply.choices[0].text

    alone = sample(5)
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(sample, range(8)))
    assert together[5] == alone
    assert len(set(together)) > 1


def test_choices_use_consecutive_seeds(sdk: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"model": SERVED_NAME, "prompt": "Once", "max_tokens": 24}
    three = [choice.text for choice in sdk.completions.create(**fields, n=3, seed=7).choices]
    assert len(set(three)) == 3
    assert three[2] == sdk.completions.create(**fields, seed=9).choices[0].text


def test_thinking_is_separated_on_request(sdk: openai.OpenAI) -> None:
    reply = sdk.chat.completions.create(
        model=SERVED_NAME,
        messages=[{"role": "user", "content": "9.11 and 9.8, which is greater?"}],
        temperature=0,
        extra_body={"chat_template_kwargs": {"enable_thinking": True}, "separate_reasoning": True},
    )
    message: Any = reply.choices[0].message
    assert message.reasoning_content
    assert message.content
    assert "think>" not in message.reasoning_content + message.content
    usage = reply.usage
    assert usage is not None
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.reasoning_tokens


def test_a_repeated_prompt_comes_from_the_prefix_cache(sdk: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"model": SERVED_NAME, "messages": CAPITALS, "max_tokens": 4}
    sdk.chat.completions.create(**fields)
    usage = sdk.chat.completions.create(**fields).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1


def test_the_demo_calls_a_tool(sdk: openai.OpenAI) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    function: Any = {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": parameters,
    }
    reply = sdk.chat.completions.create(
        model=SERVED_NAME,
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[{"type": "function", "function": function}],
        temperature=0,
    )
    [choice] = reply.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls
    [call] = choice.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def test_a_response_equals_the_chat_and_continues(sdk: openai.OpenAI) -> None:
    chat = sdk.chat.completions.create(model=SERVED_NAME, messages=CAPITALS, temperature=0)
    text = CAPITALS[0]["content"]
    first = sdk.responses.create(model=SERVED_NAME, input=text, temperature=0)
    assert first.output_text == chat.choices[0].message.content
    again = sdk.responses.create(
        model=SERVED_NAME,
        input="Thank you.",
        previous_response_id=first.id,
        max_output_tokens=8,
        temperature=0,
    )
    told: Any = [*CAPITALS, {"role": "assistant", "content": first.output_text}]
    told += [{"role": "user", "content": "Thank you."}]
    same = sdk.chat.completions.create(model=SERVED_NAME, messages=told, max_tokens=8, temperature=0)
    assert again.output_text == same.choices[0].message.content
    assert again.usage is not None
    assert again.usage.input_tokens_details.cached_tokens > 0


def test_a_streamed_response_equals_the_whole(sdk: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"model": SERVED_NAME, "input": CAPITALS[0]["content"], "temperature": 0}
    with sdk.responses.stream(**fields) as stream:
        streamed = stream.get_final_response()
    assert streamed.output_text == sdk.responses.create(**fields).output_text


def test_the_page_on_clients_shows_every_field(sdk: openai.OpenAI) -> None:
    page = (ROOT / "docs" / "clients.md").read_text()
    shown = json.loads(
        "".join(
            re.search(r'^\{"id":"chatcmpl-.*?\}$(?=\n```)', page, re.MULTILINE | re.DOTALL)[0].split("\n")
        )
    )  # type: ignore[index]
    question: Any = [{"role": "user", "content": "What is the capital of France?"}]
    raw = sdk.chat.completions.with_raw_response.create(model=SERVED_NAME, messages=question, temperature=0)
    assert fields_of(json.loads(raw.text)) == fields_of(shown)
    assert json.loads(raw.text)["choices"] == shown["choices"]


def fields_of(reply: Any) -> Any:
    """Return an object's fields, in order, with those of the objects in it."""
    if isinstance(reply, list):
        return [fields_of(each) for each in reply]
    return [(key, fields_of(value)) for key, value in reply.items()] if isinstance(reply, dict) else None
