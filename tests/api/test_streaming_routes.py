"""A plugin's route whose stream raises never looks complete: the client gets an error reply or an error event."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from litestar import Controller, Response, get
from litestar.response import Stream

from llmfw.core.base.errors import OverloadedError

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving

EVENTS = "text/event-stream"
ROUTES = (
    "early",
    "full",
    "late",
    "plain",
    "whole",
    "exits",
    "exits_at_once",
    "exits_marked",
    "Marked",
    "plain_iterator",
)


async def raising(error: BaseException, *parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    raise error


@get("/early")
async def early() -> Stream:
    return Stream(raising(RuntimeError("a defect")), media_type=EVENTS)


@get("/full")
async def full() -> Stream:
    return Stream(raising(OverloadedError("the queue is full", retry_after_s=3)), media_type=EVENTS)


@get("/late")
async def late() -> Stream:
    return Stream(raising(RuntimeError("a defect"), b"data: 1\n\n", b"data: {"), media_type=EVENTS)


@get("/exits")
async def exits() -> Stream:
    return Stream(raising(SystemExit(3), b"data: 1\n\n"), media_type=EVENTS)


async def marked(reply: Response[Any]) -> Response[Any]:
    reply.headers["x-mark"] = "set"
    return reply


def replaced(reply: Response[Any]) -> Response[Any]:
    return Stream(raising(SystemExit(3), b"data: 2\n\n"), media_type=EVENTS, headers={"x-mark": "set"})


@get("/exits_marked", after_request=marked)
async def exits_marked() -> Stream:
    return Stream(raising(SystemExit(3), b"data: 1\n\n"), media_type=EVENTS)


class Marked(Controller):
    path = "/controller"
    after_request = replaced

    @get("/exits")
    async def exits(self) -> str:
        return "replaced"


@get("/exits_at_once")
async def exits_at_once() -> Stream:
    def parts() -> Iterator[bytes]:
        raise SystemExit(3)
        yield b""

    return Stream(parts, media_type=EVENTS)


@get("/plain")
async def plain_iterator() -> Stream:
    return Stream(iter(["a", "b"]), media_type="text/plain")


@get("/bytes")
async def plain() -> Stream:
    return Stream(raising(RuntimeError("a defect"), b"abc"), media_type="application/octet-stream")


@get("/whole")
async def whole() -> Stream:
    async def parts() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        yield b"data: 2\n\n"

    return Stream(parts(), media_type=EVENTS)


@pytest.fixture(scope="module")
def examples() -> Iterator[list[tuple[str, str]]]:
    """Return the routes of the examples in the documentation, as plugin and import path."""
    page = (Path(__file__).parents[2] / "docs/hooks.md").read_text("utf-8")
    found = {"route": "summary", "streaming route": "go_on"}
    for title in found:
        code = page.partition(f"<!-- a {title} -->\n```python\n")[2].partition("```")[0]
        module = sys.modules[_module_of(title)] = ModuleType(_module_of(title))
        exec(code, vars(module))  # noqa: S102
    yield [("ext", f"{_module_of(title)}:{name}") for title, name in found.items()]
    for title in found:
        del sys.modules[_module_of(title)]


def _module_of(title: str) -> str:
    return f"example_of_a_{title.replace(' ', '_')}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, examples: list[tuple[str, str]]) -> Iterator[Served]:
    routes = [*(("ext", f"{__name__}:{name}") for name in ROUTES), *examples]
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with serving(EchoEngine(), tokenizer, plugin_routes=routes) as served:
        yield served


def test_a_defect_before_the_first_bytes_is_500(served: Served) -> None:
    reply = httpx.get(served.url + "/early")
    assert (reply.status_code, reply.headers["content-type"]) == (500, "application/json")
    assert "ext" in reply.json()["error"]["message"]


def test_a_full_queue_keeps_its_status(served: Served) -> None:
    reply = httpx.get(served.url + "/full")
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "3"
    assert reply.json()["error"]["message"] == "the queue is full"


def test_a_later_defect_is_an_error_event(served: Served) -> None:
    reply = httpx.get(served.url + "/late")
    assert reply.status_code == 200
    first, _, last = reply.text.removesuffix("\n\n").split("\n\n")
    assert first == "data: 1"
    assert "ext" in json.loads(last.removeprefix("data: "))["error"]["message"]


def test_a_stream_s_system_exit_is_contained(served: Served) -> None:
    reply = httpx.get(served.url + "/exits")
    assert "ext" in json.loads(reply.text.split("data: ")[-1])["error"]["message"]
    assert httpx.get(served.url + "/exits_at_once").status_code == 500
    assert httpx.get(served.url + "/plain").text == "ab"


def test_the_documented_route_answers(served: Served) -> None:
    reply = served.post("/summary", {"text": "abc"})
    assert reply.status_code == 200, reply.text
    assert reply.json() == {"summary": "Summarize: abc", "tokens": len("Summarize: abc") + 1}


@pytest.mark.parametrize("path", ["/exits_marked", "/controller/exits"])
def test_a_handlers_own_after_request_runs_too(served: Served, path: str) -> None:
    reply = httpx.get(served.url + path)
    assert (reply.status_code, reply.headers["x-mark"]) == (200, "set")
    assert "ext" in json.loads(reply.text.split("data: ")[-1])["error"]["message"]
    assert httpx.get(served.url + "/health").status_code == 200


def test_other_streams_are_cut(served: Served) -> None:
    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
        httpx.get(served.url + "/bytes")


def test_whole_streams_pass_unchanged(served: Served) -> None:
    assert httpx.get(served.url + "/whole").text == "data: 1\n\ndata: 2\n\n"


def test_the_documented_route_streams_and_refuses(served: Served) -> None:
    reply = httpx.post(served.url + "/continue", json={"text": "abc"})
    assert reply.headers["content-type"].startswith(EVENTS)
    *parts, done = reply.text.removesuffix("\n\n").split("\n\n")
    assert done == "data: [DONE]"
    assert "".join(json.loads(part.removeprefix("data: "))["text"] for part in parts).startswith("abc")
    refused = httpx.post(served.url + "/continue", json={"text": ""})
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
