"""Every field of OpenAI's requests is honored, refused by its name, or reported as ignored; and the docs say which."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params

from llmfw.api.schemas.chat import ChatRequest
from llmfw.api.schemas.common import GenerationRequest, Inert
from llmfw.api.schemas.completions import CompletionRequest

from ..doubles.serving import Served

API_DOCS = Path(__file__).parents[2] / "docs" / "api.md"
PARAMS: dict[type[GenerationRequest], list[Any]] = {
    ChatRequest: [
        chat_create_params.CompletionCreateParamsNonStreaming,
        chat_create_params.CompletionCreateParamsStreaming,
    ],
    CompletionRequest: [
        completion_create_params.CompletionCreateParamsNonStreaming,
        completion_create_params.CompletionCreateParamsStreaming,
    ],
}
SENT: dict[str, Any] = {
    "metadata": {"a": "b"},
    "store": True,
    "service_tier": "flex",
    "prompt_cache_key": "k",
    "prompt_cache_options": {"a": 1},
    "prompt_cache_retention": "24h",
    "prediction": {"type": "content", "content": "Hi"},
    "verbosity": "low",
}


def groups(kind: type[GenerationRequest]) -> list[set[str]]:
    """Return the names of what is honored, refused, and ignored."""
    honored = set(kind.__struct_fields__)
    return [honored, set(kind.refused) - honored, set(Inert.__struct_fields__)]


@pytest.mark.parametrize("kind", PARAMS)
def test_every_sdk_field_is_in_one_group(kind: type[GenerationRequest]) -> None:
    sendable = {name for params in PARAMS[kind] for name in get_type_hints(params)}
    assert len(sendable) > 15
    assert {name: sum(name in group for group in groups(kind)) for name in sendable} == dict.fromkeys(
        sendable, 1
    )


@pytest.mark.parametrize("kind", PARAMS)
def test_no_field_is_in_two_groups(kind: type[GenerationRequest]) -> None:
    honored, refused, ignored = groups(kind)
    assert len(honored | refused | ignored) == len(honored) + len(refused) + len(ignored)


@pytest.mark.parametrize("kind", PARAMS)
def test_the_docs_name_every_field(kind: type[GenerationRequest]) -> None:
    text = API_DOCS.read_text("utf-8")
    assert [name for group in groups(kind) for name in sorted(group) if f"`{name}`" not in text] == []


@pytest.mark.parametrize("name", SENT)
def test_ignored_fields_are_reported_and_validated(server: Served, name: str) -> None:
    assert set(SENT) == set(Inert.__struct_fields__)
    reply = server.chat("Hi", **{name: SENT[name]})
    assert (reply.status_code, reply.headers["llmfw-ignored-params"]) == (200, name)
    wrong = server.chat("Hi", **{name: [1]})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, name)
    assert "llmfw-ignored-params" not in server.chat("Hi", **{name: None}).headers


def test_null_values_of_refused_fields_are_accepted(server: Served) -> None:
    for name in groups(ChatRequest)[1]:
        reply = server.chat("Hi", **{name: None})
        assert reply.status_code == 200
        assert "llmfw-ignored-params" not in reply.headers


@pytest.mark.parametrize("name", sorted(set(ChatRequest.refused) - set(ChatRequest.__struct_fields__)))
def test_a_refused_field_is_named(server: Served, name: str) -> None:
    tuned = {"num_beams": 2} if "num_beams" in ChatRequest.refused[name].tunes else {}
    used = {"presence_penalty": 1, "logprobs": True, "skip_special_tokens": False, **tuned}
    error = server.chat("Hi", **{name: ["x"]}, **used).json()["error"]
    assert error["code"] == "unsupported_parameter"
    assert error["param"] in (name, *tuned)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
def test_unknown_stream_options_are_reported(server: Served, path: str) -> None:
    prompt = {"messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi", "input": "Hi"}
    name = {"/v1/chat/completions": "messages", "/v1/completions": "prompt"}.get(path, "input")
    options = {"coarse_chunks": True, "include_obfuscation": True}
    reply = server.post(path, {name: prompt[name], "stream": True, "stream_options": options})
    assert reply.headers["llmfw-ignored-params"] == (
        "stream_options.coarse_chunks, stream_options.include_obfuscation"
    )
