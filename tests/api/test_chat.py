"""Chat completions as the OpenAI SDK sees them."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from ..doubles.serving import SERVED_NAME, Served, wait_until

TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'


def user(text: str) -> Any:
    return [{"role": "user", "content": text}]


def chunks_of(server: Served, text: str, **fields: Any) -> list[dict[str, Any]]:
    reply = server.chat(text, stream=True, **fields)
    assert reply.headers["content-type"].startswith("text/event-stream")
    *frames, last = reply.text.removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def test_a_reply_matches_the_sdk_s_type(server: Served) -> None:
    body = server.chat("Hello", model=SERVED_NAME).json()
    reply = ChatCompletion.model_validate(body, strict=True)
    assert reply.choices[0].message.content == "Hello"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.id.startswith("chatcmpl-")
    assert reply.system_fingerprint is not None


def test_only_openai_s_keys_and_documented_extras_appear(server: Served) -> None:
    [choice] = server.chat("Hello").json()["choices"]
    extras = {"matched_stop", "stop_reason"}
    assert choice.keys() == {"index", "message", "finish_reason", "logprobs"} | extras
    assert choice["message"] == {
        "role": "assistant",
        "content": "Hello",
        "refusal": None,
        "reasoning_content": None,
    }


def test_usage_counts_all_and_cached_tokens(sdk: openai.OpenAI) -> None:
    for cached in (0, 9):
        usage = sdk.chat.completions.create(model=SERVED_NAME, messages=user("Ten bytes!")).usage
        assert usage is not None
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (10, 11, 21)
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens == cached
        assert usage.completion_tokens_details is not None
        assert usage.completion_tokens_details.reasoning_tokens == 0


def test_the_sdk_assembles_a_stream(sdk: openai.OpenAI) -> None:
    with sdk.chat.completions.stream(model=SERVED_NAME, messages=user("Hello 🎉"), n=2) as stream:
        reply = stream.get_final_completion()
    assert [choice.message.content for choice in reply.choices] == ["Hello 🎉", "Hello 🎉"]
    assert [choice.message.role for choice in reply.choices] == ["assistant", "assistant"]
    assert [choice.finish_reason for choice in reply.choices] == ["stop", "stop"]


@pytest.mark.parametrize(
    ("fields", "content"),
    [({}, ""), ({"tools": [TOOL]}, None), ({"tools": [TOOL], "tool_choice": "none"}, "")],
)
def test_content_is_null_until_calls_are_ruled_out(server: Served, fields: Any, content: str | None) -> None:
    """As in OpenAI's streams of calls: clients such as the AI SDK begin a text at the first string, be it empty."""
    first, *_ = chunks_of(server, CALL, **fields)
    assert first["choices"][0]["delta"]["content"] == content


def test_a_stream_of_calls_has_no_content(server: Served) -> None:
    chunks = chunks_of(server, CALL, tools=[TOOL])
    assert not any(isinstance(chunk["choices"][0]["delta"].get("content"), str) for chunk in chunks)


def test_chunks_have_the_order_clients_expect(server: Served) -> None:
    chunks = chunks_of(server, "abc", n=3, stream_options={"include_usage": True})
    roles = [chunk["choices"][0] for chunk in chunks[:3]]
    assert [(choice["index"], choice["delta"]["role"]) for choice in roles] == [
        (0, "assistant"),
        (1, "assistant"),
        (2, "assistant"),
    ]
    assert not any("role" in chunk["choices"][0]["delta"] for chunk in chunks[3:-1])
    finishes = [
        chunk["choices"][0] for chunk in chunks if chunk["choices"] and chunk["choices"][0]["finish_reason"]
    ]
    assert sorted(choice["index"] for choice in finishes) == [0, 1, 2]
    assert all(choice["delta"] == {"reasoning_content": None} for choice in finishes)


def test_usage_is_last_and_only_on_request(server: Served) -> None:
    asked = chunks_of(server, "abc", stream_options={"include_usage": True})
    assert asked[-1]["choices"] == []
    assert asked[-1]["usage"]["completion_tokens"] == 4
    assert all(chunk["usage"] is None for chunk in asked[:-1])
    not_asked = chunks_of(server, "abc")
    assert all("usage" not in chunk and chunk["choices"] for chunk in not_asked)


def test_every_chunk_matches_the_sdk_s_type(server: Served) -> None:
    """All name the same reply."""
    chunks = chunks_of(server, "abc", stream_options={"include_usage": True})
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    for key in ("id", "created", "model", "system_fingerprint", "object"):
        assert len({chunk[key] for chunk in chunks}) == 1


def test_a_stream_has_the_text_of_a_reply(server: Served) -> None:
    text = "Zwölf Boxkämpfer 👨‍👩‍👧 jagen\nViktor"
    chunks = chunks_of(server, text)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == text
    assert server.chat(text).json()["choices"][0]["message"]["content"] == text


def test_max_tokens_ends_with_length(sdk: openai.OpenAI) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        fields: dict[str, Any] = {name: 3}
        reply = sdk.chat.completions.create(model=SERVED_NAME, messages=user("Hello"), **fields)
        assert reply.choices[0].message.content == "Hel"
        assert reply.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stop", ["lo w", ["xyz", "lo w", "world"]])
def test_text_ends_before_a_stop_string(server: Served, stop: Any) -> None:
    """The engine's request is aborted."""
    reply = server.chat("Hello world" + " and more" * 50, stop=stop).json()
    assert reply["choices"][0]["message"]["content"] == "Hel"
    assert reply["choices"][0]["finish_reason"] == "stop"
    wait_until(lambda: any(id.startswith(reply["id"]) for id in server.engine.aborted))


def test_each_choice_has_a_derived_seed(server: Served) -> None:
    server.chat("Seeds", n=3, seed=7)
    assert [request.sampling.seed for request in server.engine.requests[-3:]] == [7, 8, 9]


def test_max_tokens_defaults_to_the_remaining_context(server: Served) -> None:
    server.chat("12345")
    assert server.engine.requests[-1].sampling.max_tokens == 512 - 5


def test_reasoning_is_split_off_and_counted(server: Served) -> None:
    body = server.chat("<think>\nHmm.\n</think>\n\nYes.").json()
    assert body["choices"][0]["message"]["reasoning_content"] == "Hmm."
    assert body["choices"][0]["message"]["content"] == "Yes."
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] > 4


def test_separate_reasoning_false_keeps_reasoning_in_content(server: Served) -> None:
    message = server.chat("<think>Hmm.</think>Yes.", separate_reasoning=False).json()["choices"][0]["message"]
    assert message["content"] == "<think>Hmm.</think>Yes."
    assert message["reasoning_content"] is None


def test_reasoning_opened_by_the_prompt_is_recognized(server: Served) -> None:
    kwargs = {"enable_thinking": True}
    message = server.chat("Hmm.</think>Yes.", chat_template_kwargs=kwargs).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hmm.", "Yes.<think>")


@pytest.mark.parametrize(("effort", "thinks"), [("none", False), ("low", True), ("high", True)])
def test_reasoning_effort_switches_thinking(server: Served, effort: str, thinks: bool) -> None:
    server.chat("Hi", reasoning_effort=effort)
    prompt = server.engine.requests[-1].prompt
    assert prompt == tokens_of("Hi<think>" if thinks else "Hi", server)


def test_chat_template_kwargs_override_reasoning_effort(server: Served) -> None:
    server.chat("Hi", reasoning_effort="high", chat_template_kwargs={"enable_thinking": False})
    prompt = server.engine.requests[-1].prompt
    assert prompt == tokens_of("Hi", server)


def tokens_of(text: str, server: Served) -> list[int]:
    """Return the tokens of a text as the server makes them."""
    server.post("/v1/completions", {"prompt": text})
    return list(server.engine.requests[-1].prompt)


def test_a_tool_call_is_parsed(sdk: openai.OpenAI) -> None:
    reply = sdk.chat.completions.create(
        model=SERVED_NAME, messages=user(f"Let me see.\n{CALL}"), tools=[TOOL]
    )
    [choice] = reply.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    assert choice.message.tool_calls is not None
    [call] = choice.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Rome"})


def test_the_sdk_assembles_streamed_tool_calls(sdk: openai.OpenAI) -> None:
    with sdk.chat.completions.stream(
        model=SERVED_NAME, messages=user(f"{CALL}\n{CALL}"), tools=[TOOL]
    ) as stream:
        [choice] = stream.get_final_completion().choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    names = [call.function.name for call in choice.message.tool_calls if call.type == "function"]
    assert names == ["get_weather", "get_weather"]
    assert len({call.id for call in choice.message.tool_calls}) == 2


def test_a_call_without_text_has_null_content(server: Served) -> None:
    message = server.chat(CALL, tools=[TOOL]).json()["choices"][0]["message"]
    assert message["content"] is None
    assert len(message["tool_calls"]) == 1


def test_without_parallel_calls_only_one_is_returned(server: Served) -> None:
    [choice] = server.chat(f"{CALL}\n{CALL}", tools=[TOOL], parallel_tool_calls=False).json()["choices"]
    assert len(choice["message"]["tool_calls"]) == 1
    assert choice["finish_reason"] == "tool_calls"


def test_tool_choice_none_leaves_calls_as_text(server: Served) -> None:
    [choice] = server.chat(CALL, tools=[TOOL], tool_choice="none").json()["choices"]
    assert choice["message"]["content"] == CALL
    assert choice["finish_reason"] == "stop"


def test_text_content_parts_are_read(sdk: openai.OpenAI) -> None:
    content: Any = [{"type": "text", "text": "Hello"}]
    reply = sdk.chat.completions.create(model=SERVED_NAME, messages=user(content))
    assert reply.choices[0].message.content == "Hello"


def test_ignored_fields_are_reported_in_a_header(server: Served) -> None:
    reply = server.chat("Hi", metadata={"a": "b"}, frobnicate=1, store=None, temperature=0)
    assert reply.status_code == 200
    assert reply.headers["llmfw-ignored-params"] == "frobnicate, metadata"


def test_without_ignored_fields_the_header_is_absent(server: Served) -> None:
    assert "llmfw-ignored-params" not in server.chat("Hi", response_format={"type": "text"}).headers


def test_the_seed_notebook_s_request_is_answered(sdk: openai.OpenAI) -> None:
    reply = sdk.chat.completions.create(
        model=SERVED_NAME,
        messages=[
            {
                "role": "system",
                "content": "You are a knowledgeable historian who provides concise responses.",
            },
            {"role": "user", "content": "Tell me about ancient Rome"},
            {"role": "assistant", "content": "Ancient Rome was a civilization centered in Italy."},
            {"role": "user", "content": "What were their major achievements?"},
        ],
        temperature=0.3,
        max_tokens=100,
        top_p=0.95,
        stop=["\n\n"],
        presence_penalty=0.2,
        frequency_penalty=0.2,
        n=1,
        seed=42,
    )
    assert reply.choices[0].message.content == "What were their major achievements?"


CONTINUED: Any = [{"role": "user", "content": "Say it"}, {"role": "assistant", "content": "It is"}]


def test_the_last_message_is_continued(server: Served) -> None:
    body = {"messages": CONTINUED, "continue_final_message": True}
    for fields in ({}, {"add_generation_prompt": False}):
        reply = server.post("/v1/chat/completions", {**body, **fields}).json()
        assert reply["choices"][0]["message"]["content"] == "It is"  # what the echo engine adds to "It is"
        assert server.engine.requests[-1].prompt == tokens_of("It is", server)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": CONTINUED, "add_generation_prompt": True}, "continue_final_message"),
        ({"messages": user("Hi")}, "messages[0].role"),
        ({"messages": [{"role": "assistant", "content": ""}]}, "messages[0].content"),
        (
            {"messages": CONTINUED, "chat_template_kwargs": {"continue_final_message": False}},
            "chat_template_kwargs.continue_final_message",
        ),
    ],
)
def test_impossible_continuations_are_refused(server: Served, fields: Any, param: str) -> None:
    reply = server.post("/v1/chat/completions", {"continue_final_message": True, **fields})
    assert reply.json()["error"]["param"] == param


def test_parsers_may_keep_special_tokens(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, seen = server.tokenizer, []
    make = tokenizer.detokenizer
    monkeypatch.setattr(
        tokenizer,
        "detokenizer",
        lambda *args, **options: seen.append(options["skip_special_tokens"]) or make(*args, **options),
    )
    server.chat("Hi")
    monkeypatch.setattr(
        "llmfw.plugins.parsers_families.qwen3_reasoning.Qwen3ReasoningParser.needs_special_tokens", True
    )
    server.chat("Hi")
    assert seen == [True, False]
