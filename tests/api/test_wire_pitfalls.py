"""Where other servers went wrong, done right. The numbers are those of the list of pitfalls in the project's notes:
each test names the ones it is about."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from llmfw.api.schemas.common import GRAMMAR_FIELDS

from ..doubles.echo_engine import WAIT, EchoEngine
from ..doubles.serving import MARKERS, SERVED_NAME, Served, byte_tokenizer, serving, wait_until

CHAT = "/v1/chat/completions"
HI: Any = [{"role": "user", "content": "Hi"}]
TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

CONSTRAINTS: dict[str, Any] = {
    "response_format": {"type": "json_object"},
    "structured_outputs": {"regex": "a+"},
    "structural_tag": {"format": {"type": "any_text", "excludes": []}},
    "choice": ["a", "b"],
    "guided_choice": ["a", "b"],
    "json_schema": "{}",
    "guided_json": "{}",
    "ebnf": 'root ::= "a"',
    "guided_grammar": 'root ::= "a"',
}


def chunks_of(reply: httpx.Response) -> list[dict[str, Any]]:
    *frames, last = reply.text.removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"), MARKERS)
    with serving(EchoEngine(), tokenizer, api_key="secret") as served:
        yield served


def test_5_21_penalties_reach_the_sampler_unchanged(server: Served) -> None:
    server.chat("Hi", frequency_penalty=0.5, presence_penalty=-0.5, repetition_penalty=1.2)
    sampling = server.engine.requests[-1].sampling
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (0.5, -0.5)
    assert sampling.repetition_penalty == 1.2


def test_6_7_8_errors_use_openai_s_envelope(locked: Served) -> None:
    """No code is an integer."""
    key = {"authorization": "Bearer secret"}
    url = locked.url
    replies = {
        404: httpx.get(url + "/nothing", headers=key),
        405: httpx.get(url + CHAT, headers=key),
        415: httpx.post(url + CHAT, content=b"x", headers={**key, "content-type": "text/plain"}),
        400: httpx.post(url + CHAT, json={"messages": []}, headers=key),
        401: httpx.post(url + CHAT, json={"messages": HI}),
    }
    for status, reply in replies.items():
        assert reply.status_code == status
        error = reply.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert isinstance(error["code"], str | None)
    assert replies[401].json()["error"]["code"] == "invalid_api_key"


def test_9_an_unserved_model_is_404(server: Served) -> None:
    reply = server.chat("Hi", model="gpt-4o")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")
    assert server.chat("Hi", model=SERVED_NAME).json()["model"] == SERVED_NAME


def test_10_11_ids_have_prefixes_without_extra_fields(server: Served) -> None:
    body = server.chat("Hi", tools=[TOOL]).json()
    assert body["id"].startswith("chatcmpl-")
    assert body["system_fingerprint"].startswith("fp_")
    assert body.keys() <= set(openai.types.chat.ChatCompletion.model_fields)
    [choice] = body["choices"]
    extras = {"matched_stop", "stop_reason"}  # documented, as clients of SGLang and vLLM read them
    assert choice.keys() <= set(openai.types.chat.chat_completion.Choice.model_fields) | extras
    assert choice["finish_reason"] in ("stop", "length", "tool_calls")


def test_12_unstreamed_replies_are_json_with_usage(server: Served) -> None:
    reply = server.chat("Hello", stream=False, max_tokens=2)
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["choices"][0]["finish_reason"] == "length"
    assert reply.json()["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("fields", [{}, {"stream": True}])
def test_13_a_too_long_prompt_is_answered(server: Served, fields: Any) -> None:
    error = server.chat("x" * 600, **fields).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "512" in error["message"]
    assert "600" in error["message"]


def test_14_chunks_share_time_and_unknown_fields_pass(server: Served) -> None:
    """The stream ends with `[DONE]`."""
    reply = server.chat("Hello", stream=True, frobnicate=1)
    assert reply.status_code == 200
    assert len({(chunk["created"], chunk["id"]) for chunk in chunks_of(reply)}) == 1


def test_15_25_roles_come_first_for_every_choice(server: Served) -> None:
    """No chunk lacks a choice."""
    chunks = chunks_of(server.chat("Hello", stream=True, n=4))
    assert [chunk["choices"][0]["index"] for chunk in chunks[:4]] == [0, 1, 2, 3]
    roles = [chunk["choices"][0]["delta"].get("role") for chunk in chunks]
    assert roles == ["assistant"] * 4 + [None] * (len(chunks) - 4)
    assert all(chunk["choices"] for chunk in chunks)


def test_16_both_reasoning_names_are_read(server: Served) -> None:
    """Replies use the usual one."""
    template = "{{ messages[0].reasoning_content }}"
    with serving(EchoEngine(), server.tokenizer, template) as served:
        for name in ("reasoning", "reasoning_content"):
            message = {"role": "assistant", "content": "", name: "<think>Hm</think>"}
            reply = served.post(CHAT, {"messages": [message]}).json()["choices"][0]["message"]
            assert reply["reasoning_content"] == "Hm"
            assert "reasoning" not in reply


@pytest.mark.parametrize("name", [*GRAMMAR_FIELDS, "guided_json_object", "guided_whitespace_pattern"])
def test_17_constraining_fields_are_never_ignored(server: Served, name: str) -> None:
    reply = server.chat("Hi", **{name: CONSTRAINTS.get(name, "a+")})
    if name in GRAMMAR_FIELDS:
        assert "llmfw-ignored-params" not in reply.headers
        assert server.engine.requests[-1].grammar is not None
    else:
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, name)


def test_18_streams_report_unknown_fields_too(server: Served) -> None:
    for stream in (False, True):
        assert server.chat("Hi", stream=stream, new_field=1).headers["llmfw-ignored-params"] == "new_field"


@pytest.mark.parametrize(
    ("path", "prompt"), [(CHAT, {"messages": HI}), ("/v1/completions", {"prompt": "Hi"})]
)
def test_19_a_seed_is_honored_on_both_routes(server: Served, path: str, prompt: Any) -> None:
    server.post(path, {**prompt, "seed": 11})
    assert server.engine.requests[-1].sampling.seed == 11


def test_22_limits_and_defaults_are_as_documented(server: Served) -> None:
    server.chat("Hi", max_completion_tokens=7)
    sampling = server.engine.requests[-1].sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p) == (7, 1.0, 1.0)


@pytest.mark.parametrize(
    "path", [CHAT, "/v1/completions", "/v1/models", "/generate", "/get_model_info", "/x"]
)
def test_23_without_the_key_only_health_answers(locked: Served, path: str) -> None:
    assert httpx.get(locked.url + path).status_code == 401
    assert httpx.post(locked.url + path, json={"messages": HI}).status_code == 401
    assert httpx.get(locked.url + "/health").status_code == 200


def test_24_health_answers_while_a_request_hangs(server: Served) -> None:
    body = {"prompt": [WAIT], "max_tokens": 1}
    before = len(server.engine.requests)

    def hang() -> None:
        try:
            httpx.post(server.url + "/v1/completions", json=body, timeout=1)
        except httpx.TimeoutException:
            return

    thread = threading.Thread(target=hang)
    thread.start()
    wait_until(lambda: len(server.engine.requests) > before)
    assert httpx.get(server.url + "/health", timeout=0.8).status_code == 200
    assert len(server.engine.requests) == before + 1
    thread.join()


def test_26_usage_always_has_details(server: Served) -> None:
    usage = server.chat("Hi").json()["usage"]
    assert "cached_tokens" in usage["prompt_tokens_details"]
    assert "reasoning_tokens" in usage["completion_tokens_details"]
    *chunks, last = chunks_of(server.chat("Hi", stream=True, stream_options={"include_usage": True}))
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"] is None
    assert (last["choices"], last["usage"].keys()) == ([], usage.keys())


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_27_tools_and_formats_are_enforced_or_refused(server: Served, choice: str) -> None:
    fields = {"tools": [TOOL], "tool_choice": choice, "response_format": {"type": "json_object"}}
    reply = server.chat("Hi", **fields)
    if reply.status_code == 400:
        assert reply.json()["error"]["param"] in ("response_format", "tool_choice")
    else:
        assert server.engine.requests[-1].grammar is not None


def test_29_the_model_card_s_length_is_usable(server: Served) -> None:
    card = httpx.get(f"{server.url}/v1/models/{SERVED_NAME}").json()
    prompt = "x" * (card["max_model_len"] - 1)
    assert server.chat(prompt, max_tokens=1).json()["usage"]["total_tokens"] == card["max_model_len"]
