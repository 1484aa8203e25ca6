"""Requests of every kind, and the form that their answers must have: a schema of OpenAI's document, a type of its SDK."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx
from openai.types import Completion, CreateEmbeddingResponse, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent


@dataclass(frozen=True)
class Form:
    """The form of a JSON value.

    Attributes:
        schema: its name in OpenAI's document.
        kind: its type in OpenAI's SDK, if it has one of its own.
    """

    schema: str
    kind: Any = None


@dataclass(frozen=True)
class Call:
    """A request.

    Attributes:
        id: of the test.
        path, body: what is sent; no body: a GET.
        form: of the reply, or of each event of a stream.
        status: of the reply.
    """

    id: str
    path: str
    form: Form
    body: dict[str, Any] | None = None
    status: int = 200

    def send(self, url: str) -> httpx.Response:
        """Send it to a server."""
        if self.body is None:
            return httpx.get(url + self.path, timeout=60)
        return httpx.post(url + self.path, json=self.body, timeout=60)

    def values(self, reply: httpx.Response) -> list[Any]:
        """Return what is to be judged: the reply, or the data of each event."""
        if not reply.headers["content-type"].startswith("text/event-stream"):
            return [_with_nulls_filled(reply.json())]
        data = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: ")]
        if data[-1] == "[DONE]":
            data.pop()
        return [_with_nulls_filled(json.loads(item)) for item in data]


def _with_nulls_filled(value: Any) -> Any:
    """Return a completion without the nulls that OpenAI sends and its document's schema does not know.

    The one schema for reply and chunk has no null for what a chunk does not tell yet, though the document's own
    example of a stream has; nor for the first token of an echoed prompt, which nothing comes before.
    """
    if value.get("object") != "text_completion":
        return value
    if value.get("usage", "") is None:
        del value["usage"]
    for choice in value["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"
        for name, filled in (("token_logprobs", 0), ("top_logprobs", {})):
            entries = (choice["logprobs"] or {}).get(name)
            if entries and entries[0] is None:
                entries[0] = filled
    return value


CHAT = Form("CreateChatCompletionResponse", ChatCompletion)
CHAT_CHUNK = Form("CreateChatCompletionStreamResponse", ChatCompletionChunk)
COMPLETION = Form("CreateCompletionResponse", Completion)
EMBEDDINGS = Form("CreateEmbeddingResponse", CreateEmbeddingResponse)
RESPONSE = Form("Response", Response)
RESPONSE_EVENT = Form("ResponseStreamEvent", ResponseStreamEvent)
ERROR = Form("ErrorResponse")

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def chat(**fields: Any) -> dict[str, Any]:
    """Return the body of a chat."""
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    return {"model": "demo", "messages": messages, "max_completion_tokens": 60, "seed": 1, **fields}


def completion(**fields: Any) -> dict[str, Any]:
    """Return the body of a completion."""
    return {"model": "demo", "prompt": "The capital of France", "max_tokens": 8, "seed": 1, **fields}


def response(**fields: Any) -> dict[str, Any]:
    """Return the body of a response."""
    return {"model": "demo", "input": "What is the capital of France?", "max_output_tokens": 60, **fields}


_CHATS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two": {"n": 2, "temperature": 1.5},
    "cut": {"max_completion_tokens": 1},
    "thinks": {"chat_template_kwargs": {"enable_thinking": True}},
    "logprobs": {"logprobs": True, "top_logprobs": 3},
    "usage": {"stream_options": {"include_usage": True}},
    "tool_auto": {"tools": [WEATHER]},
    "tool_required": {"tools": [WEATHER], "tool_choice": "required"},
    "tool_named": {
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
    },
    "json_schema": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    },
    "json_object": {"response_format": {"type": "json_object"}},
    "all_at_once": {
        "n": 2,
        "logprobs": True,
        "top_logprobs": 2,
        "chat_template_kwargs": {"enable_thinking": True},
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}},
        "stream_options": {"include_usage": True},
    },
}
_COMPLETIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "list": {"prompt": ["One", "Two"], "n": 2},
    "logprobs": {"logprobs": 2},
    "echo": {"echo": True, "logprobs": 2, "max_tokens": 3},
    "usage": {"stream_options": {"include_usage": True}},
}
_FUNCTION = {"type": "function", "strict": None, **WEATHER["function"]}
_RESPONSES: dict[str, dict[str, Any]] = {
    "plain": {},
    "cut": {"max_output_tokens": 1},
    "thinks": {"reasoning": {"effort": "high"}},
    "tool": {"tools": [_FUNCTION], "tool_choice": "required"},
    "json_schema": {"text": {"format": {"type": "json_schema", "name": "person", "schema": PERSON}}},
    "logprobs": {"top_logprobs": 2, "include": ["message.output_text.logprobs"]},
    "logprobs_thinks": {"top_logprobs": 1, "reasoning": {"effort": "high"}, "max_output_tokens": 200},
    "instructions": {"instructions": "Answer in one word.", "metadata": {"a": "b"}},
    "reasoning_back": {
        "input": [
            {"role": "user", "content": "What is the capital of France?"},
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "Think of France."}],
            },
            {"role": "assistant", "content": "Paris."},
            {"role": "user", "content": "And of Spain?"},
        ]
    },
    "turns": {
        "tools": [_FUNCTION],
        "input": [
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "The weather in Rome?"},
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city":"Rome"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]},
            {"role": "user", "content": [{"type": "input_text", "text": "Thanks!"}]},
        ],
    },
}
_WRONG: dict[str, tuple[str, dict[str, Any], int]] = {
    "no_messages": ("/v1/chat/completions", {"model": "demo"}, 400),
    "temperature": ("/v1/chat/completions", chat(temperature=-1), 400),
    "model": ("/v1/completions", completion(model="other"), 404),
    "no_input": ("/v1/responses", {"model": "demo"}, 400),
    "embeds": ("/v1/embeddings", {"model": "demo", "input": "Hi"}, 400),
}


def _streamed(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "stream": True}


def _unary(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "stream_options"}


CALLS = [
    Call("models", "/v1/models", Form("ListModelsResponse")),
    Call("model", "/v1/models/demo", Form("Model", Model)),
    *(Call(f"chat-{k}", "/v1/chat/completions", CHAT, chat(**_unary(v))) for k, v in _CHATS.items()),
    *(
        Call(f"chat-{k}-stream", "/v1/chat/completions", CHAT_CHUNK, chat(**_streamed(v)))
        for k, v in _CHATS.items()
    ),
    *(
        Call(f"completion-{k}", "/v1/completions", COMPLETION, completion(**_unary(v)))
        for k, v in _COMPLETIONS.items()
    ),
    *(
        Call(f"completion-{k}-stream", "/v1/completions", COMPLETION, completion(**_streamed(v)))
        for k, v in _COMPLETIONS.items()
    ),
    *(Call(f"response-{k}", "/v1/responses", RESPONSE, response(**v)) for k, v in _RESPONSES.items()),
    *(
        Call(f"response-{k}-stream", "/v1/responses", RESPONSE_EVENT, response(**_streamed(v)))
        for k, v in _RESPONSES.items()
    ),
    *(Call(f"error-{k}", path, ERROR, body, status) for k, (path, body, status) in _WRONG.items()),
]
"""Against a server with the demo model."""
