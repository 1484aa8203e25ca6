"""Answers whose engine is replaced half-way: whole replies are made anew, and nothing is in them twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmfw.core.base.request import Request, TokenEvent

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving

TEXT = "Once upon a time"
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": TEXT}]}


class RestartingEngine(EchoEngine):
    """Starts each request anew, once, after five tokens, as a client over an engine that was replaced does."""

    def _next(self, request: Request, done: int) -> list[TokenEvent]:
        if done == 5 and request.may_restart and request.id not in self.restarted:
            self.restarted.add(request.id)
            self._running[request.id] = (request, 0)
            return [TokenEvent(request.id, [], restarted=True)]
        return super()._next(request, done)

    def __init__(self) -> None:
        super().__init__(delay=0.005)
        self.restarted: set[str] = set()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with serving(RestartingEngine(), byte_tokenizer(tmp_path)) as served:
        yield served


def test_a_restarted_reply_has_its_text_once(server: Served) -> None:
    reply = server.chat(TEXT, n=3).json()
    assert [choice["message"]["content"] for choice in reply["choices"]] == [TEXT] * 3
    assert reply["usage"]["completion_tokens"] == 3 * (len(TEXT) + 1)
    completion = server.post("/v1/completions", {"prompt": TEXT, "max_tokens": 100, "logprobs": 1}).json()
    assert completion["choices"][0]["text"] == TEXT
    assert len(completion["choices"][0]["logprobs"]["tokens"]) == len(TEXT) + 1
    assert server.post("/v1/responses", {"input": TEXT}).json()["output"][0]["content"][0]["text"] == TEXT
    message = server.post("/v1/messages", CHAT | {"max_tokens": 100, "model": "org/echo"}).json()
    assert message["content"][0]["text"] == TEXT
    assert len(server.engine.restarted) == 6


def test_a_stream_is_never_restarted(server: Served) -> None:
    with server.openai() as sdk:
        stream = sdk.chat.completions.create(model="org/echo", stream=True, **CHAT)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == TEXT
    assert not server.engine.restarted


def test_a_restarted_background_response_informs_its_followers(server: Served) -> None:
    with server.openai() as sdk:
        events = list(sdk.responses.create(model="org/echo", input=TEXT, background=True, stream=True))
    kinds = [event.type for event in events]
    assert kinds.count("response.in_progress") == 2
    again = len(kinds) - 1 - kinds[::-1].index("response.in_progress")
    assert events[again].response.output == []
    assert "".join(e.delta for e in events[again:] if e.type == "response.output_text.delta") == TEXT
    assert events[-1].response.output_text == TEXT
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_a_restarted_background_response_is_complete(server: Served) -> None:
    id = server.post("/v1/responses", {"input": TEXT, "background": True}).json()["id"]
    deadline = time.monotonic() + 10
    while (response := httpx.get(f"{server.url}/v1/responses/{id}").json())["status"] != "completed":
        assert time.monotonic() < deadline
    assert response["output"][0]["content"][0]["text"] == TEXT
    assert len(response["output"]) == 1
