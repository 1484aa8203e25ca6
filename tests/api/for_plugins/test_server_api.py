"""Routes of plugins run requests through `state["api"]`, with the server's own checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from litestar import Request, post
from litestar.datastructures import State

from llmfw.core import RequestError, ServerAPI

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import Served, byte_tokenizer, serving


class Question(msgspec.Struct):
    path: str
    body: dict[str, Any]
    stream: bool = False


@post("/ask", status_code=200)
async def ask(request: Request[Any, Any, Any], state: State) -> Any:
    api: ServerAPI = state["api"]
    body, unknown = await api.read(request, Question)
    if unknown:
        raise RequestError(f"unknown: {unknown}", param=unknown[0])
    if body.stream:
        return [chunk async for chunk in api.stream(body.path, body.body) if chunk]
    return await api.while_connected(request, api.call(body.path, body.body))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with serving(EchoEngine(), tokenizer, plugin_routes=[("ask", f"{__name__}:ask")]) as served:
        yield served


CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


def test_a_chat_equals_its_route_s_reply(asked: Served) -> None:
    reply = asked.post("/ask", {"path": "/v1/chat/completions", "body": CHAT}).json()
    assert reply["choices"][0]["message"]["content"] == "Hi"


def test_chunks_end_with_the_usage(asked: Served) -> None:
    body = {"path": "/v1/completions", "body": {"prompt": "Hello"}, "stream": True}
    *chunks, last = asked.post("/ask", body).json()
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "Hello"
    assert last["usage"]["completion_tokens"] == 6


def test_completions_have_no_default_limit(asked: Served) -> None:
    body = {"path": "/v1/completions", "body": {"prompt": "x" * 40}}
    assert asked.post("/ask", body).json()["choices"][0]["text"] == "x" * 40


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"path": "/v1/chat/completions", "body": {**CHAT, "mood": 1}}, "mood"),
        ({"path": "/v1/chat/completions", "body": {**CHAT, "top_p": 7}}, "top_p"),
        ({"path": 5, "body": {}}, "path"),
        ({"path": "", "body": {}, "more": 1}, "more"),
    ],
)
def test_wrong_fields_are_named(asked: Served, body: dict[str, Any], param: str) -> None:
    reply = asked.post("/ask", body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_path_lists_the_known_ones(
    asked: Served, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    reply = asked.post("/ask", {"path": "/v1/nothing", "body": CHAT, "stream": stream})
    assert reply.json()["error"]["code"] == "plugin_error"
    assert (
        "there is no path '/v1/nothing' to call; known: /v1/chat/completions, /v1/completions" in caplog.text
    )
