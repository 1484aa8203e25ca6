"""Log probabilities of chats, as the OpenAI SDK sees them."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from ..doubles.serving import SERVED_NAME, Served

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def ask(server: Served, text: str, **fields: Any) -> dict[str, Any]:
    reply = server.chat(text, **fields)
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    ChatCompletion.model_validate(body, strict=True)
    return dict(body["choices"][0])


def chunks_of(server: Served, text: str, **fields: Any) -> list[dict[str, Any]]:
    frames = server.chat(text, stream=True, **fields).text.split("\n\n")[:-2]
    bodies = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    for body in bodies:
        ChatCompletionChunk.model_validate(body, strict=True)
    return [body["choices"][0] for body in bodies]


def test_logprobs_are_absent_by_default(server: Served) -> None:
    assert ask(server, "Hi")["logprobs"] is None
    assert {chunk["logprobs"] for chunk in chunks_of(server, "Hi", logprobs=False)} == {None}


def test_each_content_token_has_a_logprob_entry(server: Served) -> None:
    logprobs = ask(server, "Aé", logprobs=True)["logprobs"]
    assert logprobs["refusal"] is None
    assert [(e["token"], e["bytes"]) for e in logprobs["content"]] == [
        ("A", [0x41]),
        ("�", [0xC3]),
        ("�", [0xA9]),
    ]
    assert {len(entry["top_logprobs"]) for entry in logprobs["content"]} == {0}


@pytest.mark.parametrize("num", [0, 1, 20])
def test_each_token_has_the_requested_top_logprobs(server: Served, num: int) -> None:
    [entry] = ask(server, "A", logprobs=True, top_logprobs=num)["logprobs"]["content"]
    assert len(entry["top_logprobs"]) == num
    assert all(top["bytes"] == list(top["token"].encode()) for top in entry["top_logprobs"][:5])
    if num:
        assert entry["top_logprobs"][0] == {key: entry[key] for key in ("token", "logprob", "bytes")}


@pytest.mark.parametrize(
    "fields", [{}, {"stop": ["stop"]}, {"max_tokens": 9}, {"tools": TOOLS}, {"n": 1, "top_logprobs": 2}]
)
def test_chunks_have_the_whole_reply_s_logprobs(server: Served, fields: dict[str, Any]) -> None:
    text = f"a🎉 sto {CALL} or stop"
    whole = ask(server, text, logprobs=True, **fields)
    chunks = chunks_of(server, text, logprobs=True, **fields)
    entries = [entry for chunk in chunks if chunk["logprobs"] for entry in chunk["logprobs"]["content"]]
    assert entries == whole["logprobs"]["content"]
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == whole["message"]["content"]
    assert all(chunk["logprobs"] is None or chunk["delta"]["content"] for chunk in chunks)


def test_reasoning_and_calls_have_no_entries(server: Served) -> None:
    choice = ask(server, f"<think>Hm</think>Ok{CALL}", logprobs=True, tools=TOOLS)
    assert choice["finish_reason"] == "tool_calls"
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["O", "k"]


def test_the_sdk_s_stream_helper_joins_logprobs(sdk: openai.OpenAI) -> None:
    with sdk.chat.completions.stream(
        model=SERVED_NAME, messages=[{"role": "user", "content": "Hello"}], logprobs=True, top_logprobs=1
    ) as stream:
        reply = stream.get_final_completion()
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert "".join(entry.token for entry in logprobs.content or []) == "Hello"


def test_every_choice_has_its_logprobs(server: Served) -> None:
    reply = server.chat("Hi", logprobs=True, n=2).json()
    assert [len(choice["logprobs"]["content"]) for choice in reply["choices"]] == [2, 2]
