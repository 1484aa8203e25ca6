"""Any two features of a chat together: they do what each of them does, or the server says that they cannot."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import openai
import pytest
from openai.types.chat import ChatCompletion

from ..doubles.serving import Served
from ..length import also

pytestmark = pytest.mark.slow

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["age"],
    "additionalProperties": False,
}
FUNCTION = {"name": "get_age", "parameters": SCHEMA}
TOOLS: dict[str, Any] = {"tools": [{"type": "function", "function": FUNCTION}]}
FORM = {"type": "json_schema", "json_schema": {"name": "age", "schema": SCHEMA}}
FEATURES: dict[str, dict[str, Any]] = {
    "stream": {"stream": True},
    "n": {"n": 2},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "auto": TOOLS,
    "required": {**TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
    "named": {**TOOLS, "tool_choice": {"type": "function", "function": {"name": "get_age"}}},
    "schema": {"response_format": FORM},
    "reasoning": {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}, "thinking_budget": 5}},
    "stop": {"stop": ["e"]},
    "seed": {"seed": 3},
    "include_usage": {"stream": True, "stream_options": {"include_usage": True}},
}
PAIRS = [
    pair
    for pair in itertools.combinations(FEATURES, 2)
    if not {*pair} < {"auto", "required", "named"}  # the same field
]
QUICK = PAIRS[::3]
"""What `make test` runs: each feature with two others or more."""


@pytest.fixture(scope="module")
def demo_sdk(demo_server: Served) -> Iterator[openai.OpenAI]:
    with demo_server.openai() as client:
        yield client


def ask(client: openai.OpenAI, fields: dict[str, Any]) -> tuple[ChatCompletion, bool]:
    """Return the answer, put together by the SDK if it came as a stream, and whether it had usage."""
    messages: Any = [{"role": "user", "content": "Tell me a story."}]
    fields = {"model": "demo", "messages": messages, "max_tokens": 60, "temperature": 0, **fields}
    if not fields.pop("stream", False):
        reply: ChatCompletion = client.chat.completions.create(**fields)
        return reply, reply.usage is not None
    with client.chat.completions.stream(**fields) as stream:
        for _ in stream:
            pass
        whole = stream.current_completion_snapshot
    return whole, whole.usage is not None


@pytest.mark.long
@pytest.mark.parametrize("pair", [*QUICK, *also(pair for pair in PAIRS if pair not in QUICK)], ids="+".join)
def test_pairs_of_features_work_together(demo_sdk: openai.OpenAI, pair: tuple[str, str]) -> None:
    first, second = (FEATURES[name] for name in pair)
    reply, has_usage = ask(demo_sdk, {**first, **second})
    assert has_usage == ("include_usage" in pair or "stream" not in pair)
    assert [choice.index for choice in reply.choices] == list(range(2 if "n" in pair else 1))
    for choice in reply.choices:
        _check(choice, pair)


def _check(choice: Any, pair: tuple[str, str]) -> None:
    message = choice.message
    calls = message.tool_calls or []
    if {"required", "named"} & {*pair}:
        _check_call(choice, named="named" in pair)
        assert not message.content
    elif "auto" not in pair:
        assert calls == []
    if "schema" in pair and not calls and "stop" not in pair:
        jsonschema.validate(json.loads(message.content), SCHEMA)
    if "stop" in pair:
        assert "e" not in (message.content or "")
    if "logprobs" in pair and message.content:
        tokens = choice.logprobs.content
        assert "".join(token.token for token in tokens).startswith(message.content)
        assert all(len(token.top_logprobs) == 2 for token in tokens)
    elif "logprobs" not in pair:
        assert choice.logprobs is None
    if "reasoning" in pair and "stop" not in pair:
        assert message.reasoning_content


def _check_call(choice: Any, *, named: bool) -> None:
    [call] = choice.message.tool_calls
    assert call.function.name == "get_age"
    jsonschema.validate(json.loads(call.function.arguments), SCHEMA)
    assert choice.finish_reason == ("stop" if named else "tool_calls")
