"""Parts of a conversation that a server must not lose: threads, results of tools, roles."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from llmfw.api.chat.prompt import render_prompt, render_prompt_briefly
from llmfw.api.schemas.chat import ChatRequest
from llmfw.core.base.errors import RequestError
from llmfw.plugins.chat_jinja.template import JinjaChatTemplate

from ..doubles.serving import SERVED_NAME, Served

CALL: Any = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USER: Any = {"role": "user", "content": "Hi"}


def result(call_id: Any = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "sunny"}


def calling(call: Any = CALL) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def chat(server: Served, *messages: Any, **fields: Any) -> Any:
    return server.post("/v1/chat/completions", {"messages": list(messages), **fields})


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_a_thread_is_refused_with_anthropics_code(server: Served, path: str) -> None:
    body = {"messages": [USER], "thread": {"type": "continue", "previous_message_id": "msg_1"}}
    reply = server.post(path, body | ({"max_tokens": 9} if path == "/v1/messages" else {}))
    error = reply.json()["error"]
    assert (reply.status_code, error["type"], error["param"]) == (400, "invalid_request_error", "thread")
    assert error["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    assert (
        server.post("/v1/messages", {"messages": [USER], "max_tokens": 9, "thread": None}).status_code == 200
    )


def test_other_errors_have_no_details(server: Served) -> None:
    error = server.post("/v1/messages", {"messages": [], "max_tokens": 9}).json()["error"]
    assert "details" not in error


def test_anthropics_client_then_sends_the_whole_conversation(server: Served) -> None:
    with anthropic.Anthropic(base_url=server.url, api_key="None", max_retries=0) as client:
        thread = client.beta.messages.thread(
            model=SERVED_NAME, max_tokens=50, unsupported_request_behavior="continue_unthreaded"
        )
        for text in ("Red", "Blue"):
            reply = thread.send({"role": "user", "content": text})
            assert reply.content[0].to_dict()["text"] == text


def test_an_unsupported_summary_is_refused(server: Served) -> None:
    body = {"messages": [USER], "max_tokens": 9, "compaction": {"type": "summarize"}}
    reply = server.post("/v1/messages", body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "compaction")


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ((USER, result()), "messages[1].role"),
        ((result(), USER), "messages[0].role"),
        ((USER, calling(), result("c2")), "messages[2].tool_call_id"),
        ((USER, calling(), result(5)), "messages[2].tool_call_id"),
        ((USER, result(), calling()), "messages[1].role"),
    ],
)
def test_a_result_without_its_call_is_refused(server: Served, messages: Any, param: str) -> None:
    reply = chat(server, *messages)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    "messages",
    [
        (USER, calling(), result()),
        (USER, calling(), result(None)),
        (USER, calling({**CALL, "id": None}), result("c7")),
        (USER, calling(), result(), USER, calling({**CALL, "id": "c2"}), result("c2")),
    ],
)
def test_results_following_their_calls_are_accepted(server: Served, messages: Any) -> None:
    assert chat(server, *messages).status_code == 200


def test_anthropics_result_without_its_call_is_refused(server: Served) -> None:
    block = {"type": "tool_result", "tool_use_id": "toolu_9", "content": "sunny"}
    used = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
    messages = [USER, {"role": "assistant", "content": [used]}, {"role": "user", "content": [block]}]
    reply = server.post("/v1/messages", {"messages": messages, "max_tokens": 9})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "messages[2].content[0].tool_use_id")
    block["tool_use_id"] = "toolu_1"
    assert server.post("/v1/messages", {"messages": messages, "max_tokens": 9}).status_code == 200


CHATML = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
NAMED = "{% for m in messages %}{% if m.role == 'critic' %}C{% endif %}{{ m.content }}{% endfor %}"
TITLED = "{% for m in messages %}{{ m.role | title }}: {{ m.content }}{% endfor %}"
REFUSING = "{% for m in messages %}{{ m.role }}{{ m.content }}{% if m.role != 'user' %}{{ raise_exception('no ' + m.role) }}{% endif %}{% endfor %}"
LOSING = "{% for m in messages %}{% if m.role == 'user' %}<user>{{ m.content }}{% endif %}{% endfor %}"
MISTAKING = "{% for m in messages %}{{ 'U' if m.role == 'user' else 'A' }}: {{ m.content }}{% endfor %}"
SHORTENING = "{{ messages[-1].role }}{{ messages[-1].content }}"


def critic(template: str, **fields: Any) -> str:
    """Return the prompt of a chat in which a critic speaks."""
    render = JinjaChatTemplate(template, {})
    messages = [USER, {"role": "critic", "content": "Bad"}, USER]
    body = ChatRequest(messages=messages, **fields)
    text = render_prompt(body, render, ())
    assert render_prompt_briefly(body, render, ()) == text
    return text


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        (CHATML, "<user>Hi<critic>Bad<user>Hi"),
        (NAMED, "HiCBadHi"),
        (TITLED, "User: HiCritic: BadUser: Hi"),
    ],
)
def test_roles_the_template_writes_are_accepted(template: str, prompt: str) -> None:
    assert critic(template) == prompt


@pytest.mark.parametrize("template", [LOSING, MISTAKING, SHORTENING])
def test_roles_unknown_to_the_template_are_refused(template: str) -> None:
    with pytest.raises(RequestError, match=r"messages\[1\].role is 'critic', which .* does not know"):
        critic(template)


def test_roles_the_template_refuses_are_refused() -> None:
    with pytest.raises(RequestError, match=r"no critic$"):
        critic(REFUSING)


@pytest.mark.parametrize("role", ["", None, 5, ["user"]])
def test_a_role_must_be_text(server: Served, role: Any) -> None:
    reply = chat(server, {"role": role, "content": "Hi"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "messages[0].role")
