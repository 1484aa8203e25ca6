"""A request frees what it has used when it ends. Reference cycles would leave it to the garbage collector."""

from __future__ import annotations

import contextlib
import gc
import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from llmfw.core.client.whole_request import open_whole_request, whole_request

from ...doubles.serving import Served

NUM_REQUESTS = 20
CHAT = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 2}
TOOLS = {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}
REQUESTS: dict[str, tuple[str, str, Any]] = {
    "completion": ("POST", "/v1/completions", {"prompt": "abc", "max_tokens": 1}),
    "chat": ("POST", "/v1/chat/completions", CHAT),
    "stream": ("POST", "/v1/chat/completions", CHAT | {"stream": True}),
    "choices": ("POST", "/v1/chat/completions", CHAT | {"n": 3}),
    "tools": ("POST", "/v1/chat/completions", CHAT | TOOLS),
    "refused": ("POST", "/v1/chat/completions", CHAT | {"temperature": -1}),
    "message": ("POST", "/v1/messages", CHAT),
    "response": ("POST", "/v1/responses", {"input": "abc", "max_output_tokens": 2, "store": False}),
    "models": ("GET", "/v1/models", None),
    "health": ("GET", "/health", None),
}


@pytest.fixture(scope="module")
def connection(server: Served) -> Iterator[http.client.HTTPConnection]:
    with contextlib.closing(http.client.HTTPConnection(urlsplit(server.url).netloc)) as connection:
        yield connection


@pytest.mark.parametrize("kind", REQUESTS)
def test_requests_leave_no_cycles(kind: str, connection: http.client.HTTPConnection) -> None:
    send(connection, kind)  # creates what stays
    gc.collect()
    gc.disable()
    try:
        for _ in range(NUM_REQUESTS):
            send(connection, kind)
        assert gc.collect() < NUM_REQUESTS  # other threads of the process leave a few objects
    finally:
        gc.enable()


def send(connection: http.client.HTTPConnection, kind: str) -> None:
    method, path, body = REQUESTS[kind]
    connection.request(method, path, json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.status == (400 if kind == "refused" else 200), response.read()
    response.read()


def test_a_call_at_the_end_leaves_no_cycle() -> None:
    gc.collect()
    for _ in range(NUM_REQUESTS):
        with whole_request():
            whole = open_whole_request()
            assert whole is not None
            whole.at_end(lambda whole=whole: None)
        del whole
    assert gc.collect() == 0
