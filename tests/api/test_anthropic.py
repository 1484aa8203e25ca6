"""The Messages API as Anthropic's own client sees it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest

from llmfw.api.anthropic.conversation import conversation_of
from llmfw.core.base.request import TokenEvent

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving, wait_until

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"name": "get_weather", "description": "Get the weather.", "input_schema": SCHEMA}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}
ALL_MESSAGES = "{% for m in messages %}[{{ m.role }}|{{ m.content }}|{{ m.reasoning_content }}|{{ m.tool_calls | tojson if m.tool_calls }}|{{ m.tool_call_id }}]{% endfor %}{{ tools | tojson if tools }}"


def client_of(served: Served, **options: Any) -> anthropic.Anthropic:
    options = {"api_key": "None", "max_retries": 0, **options}
    return anthropic.Anthropic(base_url=served.url, **options)


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[anthropic.Anthropic]:
    with client_of(server) as client:
        yield client


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose answer is the conversation that the template was given."""
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with serving(EchoEngine(max_model_len=4096), tokenizer, ALL_MESSAGES) as served:
        yield served


def ask(client: anthropic.Anthropic, text: Any = "Hello", **fields: Any) -> anthropic.types.Message:
    fields = {"model": SERVED_NAME, "max_tokens": 200, **fields}
    fields.setdefault("messages", [{"role": "user", "content": text}])
    return client.messages.create(**fields)


def mirrored(mirror: Served, messages: Any, **fields: Any) -> str:
    """Return the text of the prompt that messages become."""
    with client_of(mirror) as client:
        ask(client, messages=messages, **fields)
    tokens = list(mirror.engine.requests[-1].prompt)
    return mirror.post("/v1/detokenize", {"tokens": tokens}).json()["text"]


def post(server: Served, body: dict[str, Any], path: str = "/v1/messages") -> httpx.Response:
    base = {"max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]}
    return server.post(path, base | body)


def test_a_message_matches_the_client_s_type(server: Served) -> None:
    message = anthropic.types.Message.model_validate(post(server, {}).json(), strict=True)
    assert message.id.startswith("msg_")
    assert (message.model, message.role, message.type) == (SERVED_NAME, "assistant", "message")
    assert [(block.type, getattr(block, "text", None)) for block in message.content] == [("text", "Hi")]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)


def test_the_stop_reason_explains_the_end(client: anthropic.Anthropic) -> None:
    cut = ask(client, "Hello", max_tokens=3)
    assert (cut.stop_reason, cut.stop_sequence, cut.content[0].to_dict()["text"]) == (
        "max_tokens",
        None,
        "Hel",
    )
    stopped = ask(client, "Hello", stop_sequences=["x", "lo"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "lo")


def test_usage_separates_cached_input(client: anthropic.Anthropic) -> None:
    for read in (0, 10):
        usage = ask(client, "Anthropic's").usage
        assert usage.cache_read_input_tokens == read
        assert usage.input_tokens == 11 - read
        assert usage.output_tokens == 12


def test_the_client_assembles_a_stream(client: anthropic.Anthropic) -> None:
    with client.messages.stream(
        model=SERVED_NAME, max_tokens=50, messages=[{"role": "user", "content": "Hello 🎉"}]
    ) as stream:
        texts = list(stream.text_stream)
        message = stream.get_final_message()
    assert "".join(texts) == message.content[0].to_dict()["text"] == "Hello 🎉"
    assert len(texts) > 3
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 11)


def test_a_stream_has_anthropic_s_event_order(server: Served) -> None:
    reply = post(server, {"stream": True, "messages": [{"role": "user", "content": "Hello there"}]})
    frames = [frame.split("\n") for frame in reply.text.removesuffix("\n\n").split("\n\n")]
    events = [
        (name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in frames
    ]
    assert all(name == data["type"] for name, data in events)
    kinds = [name for name, _ in events if name != "content_block_delta"]
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0][1]["message"]["usage"]["input_tokens"] == len("Hello there")
    assert events[-2][1]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_is_a_separate_block(client: anthropic.Anthropic, stream: bool) -> None:
    fields: Any = {"thinking": THINKING, "messages": [{"role": "user", "content": "Hmm.</think>Yes."}]}
    fields |= {"model": SERVED_NAME, "max_tokens": 50}
    if stream:
        with client.messages.stream(**fields) as events:
            message = events.get_final_message()
    else:
        message = client.messages.create(**fields)
    thinking, text = message.content
    assert (thinking.type, text.type) == ("thinking", "text")
    assert (thinking.to_dict()["thinking"], text.to_dict()["text"]) == ("Hmm.", "Yes.<think>")
    assert message.usage.output_tokens_details is not None
    assert message.usage.output_tokens_details.thinking_tokens > 4


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls_are_blocks_with_their_input(client: anthropic.Anthropic, stream: bool) -> None:
    messages: Any = [{"role": "user", "content": f"Let me see.\n{CALL}\n{CALL}"}]
    fields: Any = {"model": SERVED_NAME, "max_tokens": 250, "tools": [TOOL], "messages": messages}
    if stream:
        with client.messages.stream(**fields) as events:
            message = events.get_final_message()
    else:
        message = client.messages.create(**fields)
    assert message.stop_reason == "tool_use"
    assert [block.type for block in message.content] == ["text", "tool_use", "tool_use"]
    calls = [block for block in message.content if block.type == "tool_use"]
    assert [(call.name, call.input) for call in calls] == [("get_weather", {"city": "Rome"})] * 2
    assert len({call.id for call in calls}) == 2
    assert all(call.id.startswith("toolu_") for call in calls)


def test_without_parallel_calls_only_one_is_returned(client: anthropic.Anthropic) -> None:
    choice: Any = {"type": "auto", "disable_parallel_tool_use": True}
    message = ask(client, f"{CALL}{CALL}", tools=[TOOL], tool_choice=choice)
    assert [block.type for block in message.content] == ["tool_use"]


def test_tool_choice_none_leaves_calls_as_text(client: anthropic.Anthropic) -> None:
    message = ask(client, CALL, tools=[TOOL], tool_choice={"type": "none"})
    assert [block.type for block in message.content] == ["text"]


def test_the_system_prompt_comes_first(mirror: Served) -> None:
    hi = [{"role": "user", "content": "Hi"}]
    assert mirrored(mirror, hi, system="Be brief.") == "[system|Be brief.||||][user|Hi||||]".replace(
        "||||]", "|||]"
    )
    blocks = [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]
    assert mirrored(mirror, hi, system=blocks) == "[system|Be\nbrief.|||][user|Hi|||]"


def test_blocks_become_the_messages_of_a_chat(mirror: Served) -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Rome"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "Sun"}]}
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    text = mirrored(
        mirror,
        [
            {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
            {"role": "assistant", "content": [thinking, {"type": "text", "text": "I look."}, use]},
            {"role": "user", "content": [result, {"type": "text", "text": "Thanks."}]},
        ],
    )
    call = {
        "function": {"arguments": {"city": "Rome"}, "name": "get_weather"},
        "id": "toolu_1",
        "type": "function",
    }
    head, _, rest = text.partition("|Hm.|")
    assert head == "[user|Weather?|||][assistant|I look."
    calls, _, tail = rest.partition("|]")
    assert json.loads(calls) == [call]
    assert tail == "[tool|Sun|||toolu_1][user|Thanks.|||]"


def test_consecutive_messages_of_one_role_are_merged(mirror: Served) -> None:
    messages = [
        {"role": role, "content": text} for role, text in [("user", "a"), ("user", "b"), ("assistant", "c")]
    ]
    text = mirrored(
        mirror, [*messages, {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}]
    )
    assert text == "[user|a\nb|||][assistant|cd|||][user|e|||]"


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_merging_many_messages_takes_linear_time(role: str) -> None:
    messages = [{"role": role, "content": "a"}] * 50_000  # one by one to the last: minutes
    begin = time.process_time()
    [message] = conversation_of(None, messages, set())
    assert time.process_time() - begin < 5
    assert len(message["content"]) == 50_000


@pytest.mark.parametrize("message", [{"role": "user", "content": []}, {"role": "system", "content": ""}])
def test_messages_without_content_are_400(server: Served, message: Any) -> None:
    reply = server.post("/v1/messages", {"max_tokens": 3, "messages": [message]})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "messages")


def test_tools_reach_the_template_in_openai_s_form(mirror: Served) -> None:
    text = mirrored(mirror, [{"role": "user", "content": "Hi"}], tools=[TOOL])
    function = {"name": "get_weather", "description": "Get the weather.", "parameters": SCHEMA}
    assert json.loads(text.partition("]")[2]) == [{"type": "function", "function": function}]


def test_sampling_fields_reach_the_engine(server: Served) -> None:
    fields = {"temperature": 0.5, "top_k": 7, "top_p": 0.9, "max_tokens": 33, "stop_sequences": ["!"]}
    assert post(server, fields).status_code == 200
    sampling = server.engine.requests[-1].sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.max_tokens, sampling.stop) == (
        0.5,
        7,
        0.9,
        33,
        ("!",),
    )


def test_count_tokens_equals_the_message_s_usage(client: anthropic.Anthropic) -> None:
    messages: Any = [{"role": "user", "content": "How many?"}]
    count = client.messages.count_tokens(model=SERVED_NAME, messages=messages, thinking=THINKING)
    usage = ask(client, "How many?", thinking=THINKING).usage
    assert count.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert (
        count.input_tokens > client.messages.count_tokens(model=SERVED_NAME, messages=messages).input_tokens
    )


def test_ignored_fields_are_reported_in_a_header(server: Served) -> None:
    block = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}
    use = {"type": "tool_use", "id": "x", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "x", "content": "no", "is_error": True}
    reply = post(
        server,
        {
            "metadata": {"user_id": "me", "mood": "good"},
            "messages": [
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [result, block]},
            ],
        },
    )
    names = reply.headers["llmfw-ignored-params"].split(", ")
    assert "metadata.mood" in names
    assert "messages[].content[].cache_control" in names
    assert "messages[].content[].is_error" in names


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages is empty"),
    (
        {"messages": [{"role": "user", "content": "a"}, {"role": "bot", "content": "b"}]},
        'messages[1].role is "bot"',
    ),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content is 5"),
    ({"messages": [{"role": "user", "content": [IMAGE]}]}, 'messages[0].content[0].type is "image"'),
    (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "messages[0].content[0].text is missing",
    ),
    ({"max_tokens": 0}, "max_tokens is 0"),
    ({"max_tokens": 10**4}, "maximum context length is 512"),
    ({"temperature": -1}, "temperature is -1"),
    ({"stop_sequences": [""]}, "stop_sequences[0] is empty"),
    ({"system": [{"type": "image"}]}, 'system[0].type is "image"'),
    ({"tools": [{"name": "x"}]}, "tools[0].input_schema is missing"),
    ({"tools": [{"type": "web_search_20250305", "name": "x"}]}, 'tools[0].type is "web_search_20250305"'),
    ({"tools": [TOOL], "tool_choice": {"type": "some"}}, 'tool_choice.type is "some"'),
    ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name is missing"),
    ({"thinking": {"type": "deep"}}, 'thinking.type is "deep"'),
    ({"thinking": []}, "thinking is []"),
    ({"output_config": {"effort": "huge"}}, 'output_config.effort is "huge"'),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers is"),
    (
        {
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": 5}]}
            ]
        },
        "messages[0].content[0].input is 5",
    ),
]


@pytest.mark.parametrize(("body", "message"), WRONG)
def test_errors_use_anthropic_s_envelope(server: Served, body: Any, message: str) -> None:
    reply = post(server, body)
    error = reply.json()["error"]
    assert (reply.status_code, reply.json()["type"]) == (400, "error")
    assert error["type"] == "invalid_request_error"
    assert message in error["message"]


def test_a_final_assistant_message_is_continued(server: Served) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert post(server, {"messages": messages}).status_code == 200
    assert server.tokenizer.decode(server.engine.requests[-1].prompt) == "b"


def test_a_thinking_budget_reaches_the_engine(server: Served) -> None:
    thinking = {"type": "enabled", "budget_tokens": 7}
    assert post(server, {"max_tokens": 20, "thinking": thinking}).status_code == 200
    assert server.engine.requests[-1].thinking.budget == 7


@pytest.mark.parametrize("budget", [0, -1, 2**31, 2**64, 10**30])
def test_a_thinking_budget_has_a_range(server: Served, budget: int) -> None:
    reply = post(server, {"max_tokens": 20, "thinking": {"type": "enabled", "budget_tokens": budget}})
    assert reply.status_code == 400
    assert "from 1 to 2147483647" in reply.json()["error"]["message"]


def test_errors_raise_the_client_s_exceptions(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError) as bad:
        ask(client, max_tokens=0)
    assert bad.value.request_id is not None
    assert bad.value.type == "invalid_request_error"
    with pytest.raises(anthropic.NotFoundError, match="there is no model 'claude'") as unknown:
        ask(client, model="claude")
    assert unknown.value.type == "not_found_error"


def test_an_invalid_json_body_is_400(server: Served) -> None:
    reply = httpx.post(
        f"{server.url}/v1/messages", content=b"{", headers={"content-type": "application/json"}
    )
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")


class Failing(EchoEngine):
    """Fails in the third step."""

    def step(self) -> list[TokenEvent]:
        if any(done == 2 for _, done in self._running.values()):
            raise RuntimeError("the step failed")
        return super().step()


def test_an_engine_failure_is_an_error_event(tmp_path: Path) -> None:
    messages: Any = [{"role": "user", "content": "Hello"}]
    with serving(Failing(), byte_tokenizer(tmp_path)) as served, client_of(served) as client:
        stream = client.messages.create(model=SERVED_NAME, max_tokens=9, messages=messages, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="the step failed") as failed:
            list(stream)
        assert failed.value.type == "api_error"


def test_a_disconnect_aborts_the_request(server: Served) -> None:
    body = {"max_tokens": 200, "stream": True, "messages": [{"role": "user", "content": "x" * 200}]}
    before = len(server.engine.aborted)
    with httpx.stream("POST", f"{server.url}/v1/messages", json=body) as reply:
        next(reply.iter_lines())
    wait_until(lambda: len(server.engine.aborted) > before)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/messages"])
def test_two_different_keys_are_refused(tmp_path: Path, path: str) -> None:
    keys = (("ann", "one"), ("bob", "two"))
    with serving(EchoEngine(), byte_tokenizer(tmp_path), api_key=keys) as locked:
        pair = [("authorization", "Bearer one"), ("x-api-key", "two")]
        for headers in (pair, pair[::-1]):  # a proxy may send them in any order
            reply = httpx.get(locked.url + path, headers=headers)
            assert reply.status_code == 400
            assert "different keys; send one of them" in reply.json()["error"]["message"]
        for same in ("one", ""):
            both = {"authorization": "Bearer one", "x-api-key": same}
            assert httpx.get(locked.url + "/v1/models", headers=both).status_code == 200


def test_the_key_may_come_as_x_api_key(tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), api_key="sesame") as locked:
        with client_of(locked, api_key="sesame") as client:
            assert ask(client).content
        with client_of(locked, api_key=None, auth_token="sesame") as client:
            assert ask(client).content
        with (
            client_of(locked, api_key="wrong") as client,
            pytest.raises(anthropic.AuthenticationError) as error,
        ):
            ask(client)
        assert error.value.type == "authentication_error"
