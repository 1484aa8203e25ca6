"""Whatever goes wrong, the answer is an OpenAI error: an envelope with four keys, a fitting status, a request id."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from llmfw.api.http.errors import error_response
from llmfw.core.base.errors import EngineError, RequestError

from ...doubles.echo_engine import BREAK, CRASH, FAIL, REFUSE, WAIT, EchoEngine
from ...doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}


def error_of(reply: httpx.Response, status: int) -> dict[str, Any]:
    """Return the error of a reply, after checking what holds for every error."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"]
    error = reply.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert isinstance(error["param"], str | None)
    assert isinstance(error["code"], str | None)
    return dict(error)


@pytest.mark.parametrize("error", [RequestError("no field \ud800", param="x\udc00"), EngineError("\ud800")])
def test_halves_of_surrogate_pairs_are_escaped(error: Exception) -> None:
    """A reply is JSON in UTF-8, whatever a message quotes."""
    detail = json.loads(error_response(error).content)["error"]
    assert "\\ud800" in detail["message"]
    assert detail["param"] in (None, "x\\udc00")


@pytest.mark.parametrize(
    ("fields", "param", "shown"),
    [
        ({"temperature": "hot"}, "temperature", '"hot"'),
        ({"temperature": -1}, "temperature", "-1"),
        ({"temperature": 101}, "temperature", "101"),
        ({"top_p": 7}, "top_p", "7"),
        ({"top_p": 0}, "top_p", "0"),
        ({"top_k": -2}, "top_k", "-2"),
        ({"top_k": 2**70}, "top_k", str(2**70)),
        ({"min_p": 2}, "min_p", "2"),
        ({"max_tokens": 0}, "max_tokens", "0"),
        ({"max_tokens": 1.5}, "max_tokens", "1.5"),
        ({"max_completion_tokens": -5}, "max_completion_tokens", "-5"),
        ({"max_completion_tokens": 5, "max_tokens": 6}, "max_completion_tokens", "6"),
        ({"min_tokens": 9, "max_tokens": 3}, "min_tokens", "9"),
        ({"presence_penalty": 3}, "presence_penalty", "3"),
        ({"frequency_penalty": -3}, "frequency_penalty", "-3"),
        ({"repetition_penalty": 0}, "repetition_penalty", "0"),
        ({"repetition_penalty": 1e-40}, "repetition_penalty", "1e-40"),
        ({"logit_bias": {"word": 1}}, "logit_bias.word", "word"),
        ({"logit_bias": {"7": -1, "007": 1}}, "logit_bias.007", "token 7, which another key names"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5", "101"),
        ({"logit_bias": {"5000": 1}}, "logit_bias", "5000"),
        ({"logit_bias": [1]}, "logit_bias", "[1]"),
        ({"stop": ["a", ""]}, "stop[1]", "''"),
        ({"stop": ""}, "stop", "''"),
        ({"stop": ["a"] * 257}, "stop", "257"),
        ({"stop": ["a", "b" * 257]}, "stop[1]", "257"),
        ({"stop": "b" * 257}, "stop", "257"),
        ({"logit_bias": {str(i): 1 for i in range(16_385)}}, "logit_bias", "16385"),
        ({"stop": ["a", 1]}, "stop[1]", "1"),
        ({"stop_token_ids": [1000]}, "stop_token_ids", "1000"),
        ({"seed": 2**64}, "seed", str(2**64)),
        ({"n": 0}, "n", "0"),
        ({"n": 129}, "n", "129"),
        ({"stream": "yes"}, "stream", '"yes"'),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream"),
        ({"priority": 2**40}, "priority", str(2**40)),
        ({"messages": []}, "messages", "empty"),
        ({"messages": "Hi"}, "messages", '"Hi"'),
        ({"messages": [1]}, "messages[0]", "1"),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role", "None"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages[0].role", "robot"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "5"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
            "image_url",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
            "None",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
            "messages[0].tool_calls[0].function.name",
            "missing",
        ),
        ({"tools": [{"type": "custom"}]}, "tools[0].type", "custom"),
        ({"tools": [{"type": "function"}]}, "tools[0].function.name", "None"),
        ({"tools": [TOOL, TOOL]}, "tools[1].function.name", "f"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "a b"),
        ({"tool_choice": "required"}, "tool_choice", "required"),
        ({"tools": [TOOL], "tool_choice": "often"}, "tool_choice", "often"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.function.name", "None"),
        ({"reasoning_effort": "enormous"}, "reasoning_effort", '"enormous"'),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools", "tools"),
        ({"logprobs": 5}, "logprobs", "5"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "21"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs", "-1"),
        ({"top_logprobs": 5}, "top_logprobs", "5"),
        ({"response_format": {"type": "yaml"}}, "response_format.type", "yaml"),
        ({"guided_regex": 5}, "guided_regex", "5"),
        ({"metadata": "a"}, "metadata", "a"),
        ({"audio": {"voice": "alloy"}}, "audio", "alloy"),
        ({"modalities": ["text", "audio"]}, "modalities", "audio"),
        ({"functions": [{"name": "f"}]}, "functions", "tools"),
        ({"web_search_options": {"a": 1}}, "web_search_options", "web"),
    ],
)
def test_a_wrong_value_names_field_and_value(
    server: Served, fields: dict[str, Any], param: str, shown: str
) -> None:
    error = error_of(server.post(CHAT, {"messages": MESSAGES, **fields}), 400)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert param in error["message"]
    assert shown in error["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "x" * 10**6},
        {"logit_bias": {"x" * 10**6: 1}},
        {"structured_outputs": {"x" * 10**6: 1}},
        {"messages": [{"role": "x" * 10**6}]},
    ],
    ids=lambda fields: next(iter(fields)),
)
@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
def test_errors_do_not_echo_large_values(server: Served, path: str, fields: dict[str, Any]) -> None:
    reply = server.post(path, {"messages": MESSAGES, "max_tokens": 3, **fields})
    if path == CHAT or fields.keys() & {"model", "messages"}:
        assert reply.status_code in (400, 404)
        assert len(reply.content) < 10_000


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [1000]}, "prompt"),
        ({"prompt": [[1], [-1]]}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": "a", "best_of": 1, "n": 2}, "best_of"),
        ({"prompt": "a", "best_of": 2, "stream": True}, "best_of"),
        ({"prompt": "a", "best_of": 0}, "best_of"),
        ({"prompt": ["a"] * 33, "n": 128}, "n"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "suffix": "b", "echo": True}, "echo"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
        ({"prompt": "a", "logprobs": -1}, "logprobs"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": ["a"] * 3000}, "prompt"),
        ({}, "prompt"),
    ],
)
def test_a_wrong_completion_names_the_field(server: Served, fields: dict[str, Any], param: str) -> None:
    assert error_of(server.post(COMPLETIONS, fields), 400)["param"] == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "text"),
        ({"text": "a", "input_ids": [1]}, "input_ids"),
        ({"text": "a", "sampling_params": {"max_new_tokens": -1}}, "max_new_tokens"),
        ({"text": "a", "sampling_params": {"top_p": "x"}}, "sampling_params.top_p"),
        ({"text": "a", "sampling_params": {"regex": ""}}, "sampling_params.regex"),
        ({"text": "a", "sampling_params": {"n": 0}}, "sampling_params.n"),
        ({"text": []}, "text"),
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": [1, [2]]}, "input_ids"),
        ({"text": ["a"] * 3000}, "text"),
        ({"text": "a", "token_ids_logprob": [1]}, "token_ids_logprob"),
        ({"text": "a", "return_logprob": True, "token_ids_logprob": [-1]}, "token_ids_logprob[0]"),
        ({"text": "a", "return_logprob": True, "token_ids_logprob": [[1]]}, "token_ids_logprob"),
        ({"text": "a", "top_logprobs_num": 2}, "top_logprobs_num"),
        ({"text": "a", "return_logprob": True, "top_logprobs_num": 21}, "top_logprobs_num"),
        ({"text": "a", "return_logprob": True, "logprob_start_len": -2}, "logprob_start_len"),
    ],
)
def test_a_wrong_native_request_names_the_field(server: Served, fields: dict[str, Any], param: str) -> None:
    assert error_of(server.post("/generate", fields), 400)["param"] == param


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": "\xff"}', b"null", b"[" * 100_000])
def test_a_non_object_body_is_400(server: Served, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    error_of(httpx.post(server.url + CHAT, content=body, headers=headers), 400)


@pytest.mark.parametrize(("size", "asked"), [(512, 1), (600, None), (500, 13)])
def test_a_too_long_prompt_names_both_numbers(server: Served, size: int, asked: int | None) -> None:
    error = error_of(server.chat("x" * size, max_tokens=asked), 400)
    assert error["code"] == "context_length_exceeded"
    assert "512" in error["message"]
    assert str(size) in error["message"]


def test_the_full_context_is_usable(server: Served) -> None:
    assert server.chat("x" * 500, max_tokens=12).status_code == 200


def test_an_unknown_model_names_the_served_one(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        sdk.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "Hi"}])
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"
    assert SERVED_NAME in caught.value.message


def test_an_unknown_path_is_404(server: Served) -> None:
    error = error_of(httpx.get(server.url + "/v1/nothing"), 404)
    assert error["code"] == "unknown_url"
    assert "/v1/nothing" in error["message"]


def test_a_wrong_method_lists_the_allowed_ones(server: Served) -> None:
    reply = httpx.get(server.url + CHAT)
    assert error_of(reply, 405)["code"] == "method_not_allowed"
    assert "POST" in reply.headers["allow"]


def test_a_wrong_content_type_is_415(server: Served) -> None:
    reply = httpx.post(server.url + CHAT, content=b"{}", headers={"content-type": "text/plain"})
    assert error_of(reply, 415)["code"] == "unsupported_media_type"


def test_a_too_large_body_is_refused_unread(server: Served) -> None:
    address = urlsplit(server.url)
    with contextlib.closing(HTTPConnection(str(address.hostname), address.port, timeout=10)) as connection:
        connection.putrequest("POST", CHAT)
        connection.putheader("content-length", "999999999")
        connection.endheaders()
        reply = connection.getresponse()
        assert reply.status == 413
        assert json.load(reply)["error"]["code"] == "request_too_large"


def test_engine_refusals_are_400_and_name_the_field(server: Served) -> None:
    error = error_of(server.post(COMPLETIONS, {"prompt": [REFUSE]}), 400)
    assert error["param"] == "prompt"
    assert "refuses" in error["message"]
    assert server.chat("Hi").status_code == 200


def test_an_engine_defect_ends_only_its_request(server: Served) -> None:
    reply = server.post(COMPLETIONS, {"prompt": [BREAK]})
    assert "defect" in error_of(reply, 500)["message"]
    assert reply.headers["x-should-retry"] == "false"
    assert server.chat("Hi").status_code == 200


def test_one_failing_prompt_aborts_the_others(server: Served) -> None:
    before = len(server.engine.aborted)
    error_of(server.post(COMPLETIONS, {"prompt": [[WAIT], [REFUSE], [WAIT]]}), 400)
    assert server.chat("Hi").status_code == 200
    assert len(server.engine.aborted) == before + 2


def test_failures_in_mid_stream_raise_in_the_sdk(sdk: openai.OpenAI) -> None:
    stream = sdk.completions.create(model=SERVED_NAME, prompt=[65, FAIL], stream=True)
    assert next(iter(stream)).choices[0].text
    with stream, pytest.raises(openai.APIError, match="no more tokens"):
        list(stream)


def test_an_engine_refusal_does_not_start_a_stream(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="refuses"):
        sdk.completions.create(model=SERVED_NAME, prompt=[REFUSE], stream=True)


def test_a_handler_s_defect_is_500_without_details(
    server: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("llmfw.api.chat.prompt.check_messages", lambda *args, **named: 1 / 0)
    reply = server.chat("Hi")
    assert error_of(reply, 500)["code"] == "internal_error"
    assert "ZeroDivision" not in reply.text
    assert reply.headers["x-should-retry"] == "false"
    assert "ZeroDivisionError" in caplog.text


@pytest.fixture
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("model"))) as served:
        yield served


def test_an_engine_death_ends_streams_and_fails_health(fragile: Served) -> None:
    with (
        fragile.openai() as sdk,
        contextlib.closing(
            sdk.completions.create(model=SERVED_NAME, prompt="A long text", stream=True)
        ) as stream,
    ):
        next(iter(stream))
        assert "the step failed" in error_of(fragile.post(COMPLETIONS, {"prompt": [CRASH]}), 503)["message"]
    for reply in (httpx.get(fragile.url + "/health"), fragile.chat("Hi"), fragile.chat("Hi", stream=True)):
        assert error_of(reply, 503)["code"] == "engine_dead"
        assert reply.headers["x-should-retry"] == "false"
