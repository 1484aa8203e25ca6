"""A request that a plugin cancels gets an error reply, and the log names the plugin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import get
from litestar.response import Stream

from llmfw.api.app.cancelled_requests import SHUTDOWN, CancelledRequests
from llmfw.api.services.middleware import Middleware
from llmfw.core import HTTPMiddleware
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.registry import Entry
from llmfw.plugins.parsers_families.hermes import HermesToolParser

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving, wait_until


def cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


@get("/cancels/at-once")
async def at_once() -> str:
    cancel_own_task()
    await asyncio.sleep(0)
    return "not reached"


@get("/cancels/stream")
async def stream() -> Stream:
    async def events() -> AsyncIterator[str]:
        yield "data: 1\n\n"
        await asyncio.sleep(0.05)
        cancel_own_task()
        await asyncio.sleep(0)

    return Stream(events(), media_type="text/event-stream")


@get("/cancels/slow")
async def slow() -> str:
    await asyncio.sleep(5)
    return "late"


class Cancelling(HTTPMiddleware):
    """Does what the header `x-do` says."""

    async def handle(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        own: Any = asyncio.current_task()

        async def cancels_first(message: Any) -> None:
            await send(message)
            if message.get("more_body"):
                own.cancel()

        what = dict(scope["headers"]).get(b"x-do", b"")
        if what == b"before":
            cancel_own_task()
        if what == b"timeout":
            try:
                await asyncio.wait_for(app(scope, receive, send), 0.05)
            except TimeoutError:
                await send({"type": "http.response.start", "status": 504, "headers": []})
                await send({"type": "http.response.body", "body": b"too late"})
            return
        await app(scope, receive, cancels_first if what == b"stream" else send)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    entry = Entry("middleware", "odd", "x:Y", "odd_plugin", "odd", "1.0")
    odd = Middleware(Cancelling(HTTPMiddleware.Options()), ComponentCalls(entry), False)
    routes = [("ext", f"{__name__}:{name}") for name in ("at_once", "stream", "slow")]
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with serving(EchoEngine(), tokenizer, plugin_routes=routes, middleware_objects=(odd,)) as served:
        yield served


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(("path", "do", "plugin"), [("at-once", "", "ext"), ("slow", "before", "odd_plugin")])
def test_a_cancelled_request_names_the_plugin(
    server: Served, path: str, do: str, plugin: str, caplog: pytest.LogCaptureFixture
) -> None:
    reply = httpx.get(f"{server.url}/cancels/{path}", headers={"x-do": do}, timeout=4)
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "plugin_error")
    assert f"of plugin '{plugin}' failed on this request" in reply.json()["error"]["message"]
    assert reply.headers["x-request-id"]
    [line] = errors(caplog)
    assert f"of plugin '{plugin}' (" in line


@pytest.mark.parametrize(
    ("path", "body", "plugin"),
    [
        ("/cancels/stream", None, "ext"),
        ("/v1/completions", {"prompt": "Hello", "stream": True}, "odd_plugin"),
    ],
)
def test_a_cancelled_stream_ends_with_an_error(
    server: Served, path: str, body: Any, plugin: str, caplog: pytest.LogCaptureFixture
) -> None:
    method = "POST" if body else "GET"
    reply = httpx.request(method, server.url + path, json=body, headers={"x-do": "stream"}, timeout=4)
    assert '"code":"plugin_error"' in reply.text.strip().split("\n\n")[-1]
    [line] = errors(caplog)
    assert f"of plugin '{plugin}' (" in line


def test_a_timeout_of_middleware_stays_one(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    reply = httpx.get(f"{server.url}/cancels/slow", headers={"x-do": "timeout"}, timeout=4)
    assert (reply.status_code, reply.text) == (504, "too late")
    assert not errors(caplog)


def test_a_client_that_leaves_is_no_failure(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    with httpx.stream("GET", f"{server.url}/cancels/stream") as reply:
        next(reply.iter_raw())
    assert httpx.get(f"{server.url}/health").status_code == 200
    assert not errors(caplog)


class CancellingParser(HermesToolParser):
    """A tool parser that cancels the task in which it parses a text with "cancel"."""

    def feed(self, text: str) -> Any:
        if "n" in text:  # of "cancel"
            cancel_own_task()
        return super().feed(text)


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]


@pytest.fixture
def parsing(tmp_path: Path) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), tool_parser=CancellingParser) as served:
        yield served


@pytest.mark.parametrize("fields", [{}, {"n": 2}, {"stream": True}])
def test_a_component_that_cancels_costs_one_request(
    parsing: Served, fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    reply = parsing.chat("cancel", tools=TOOLS, **fields)
    assert '"type":"server_error"' in reply.text
    assert reply.status_code == (200 if fields.get("stream") else 500)
    assert "--no-plugin NAME" in caplog.text
    assert parsing.chat("go", tools=TOOLS).status_code == 200


def test_a_cancelled_background_response_has_failed(parsing: Served) -> None:
    tools = [{"type": "function", "name": "f", "parameters": {}}]
    made = parsing.post("/v1/responses", {"input": "cancel", "tools": tools, "background": True}).json()
    url = f"{parsing.url}/v1/responses/{made['id']}"
    wait_until(lambda: httpx.get(url).json()["status"] not in ("queued", "in_progress"))
    assert httpx.get(url).json()["status"] == "failed"


async def sent_by_cancelled(cancel: Callable[[asyncio.Task[None]], Awaitable[None]]) -> list[Any]:
    """Return what a request sends whose task is cancelled; raises what its task raises."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(5)

    async def send(message: Any) -> None:
        sent.append(message)

    scope: Any = {"type": "http", "path": "/x", "method": "GET", "headers": []}
    task = asyncio.ensure_future(CancelledRequests(app)(scope, None, send))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await cancel(task)
    await task
    return sent


def test_the_shutdown_of_uvicorn_cancels() -> None:
    async def by_uvicorn(task: asyncio.Task[None]) -> None:
        task.cancel(msg=SHUTDOWN)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(sent_by_cancelled(by_uvicorn))


def test_an_unknown_canceller_gets_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def by_another(task: asyncio.Task[None]) -> None:
        task.cancel()

    assert asyncio.run(sent_by_cancelled(by_another))[0]["status"] == 500
    assert "llmfw never does" in errors(caplog)[0]


def test_uvicorn_still_says_this() -> None:
    """The message is no documented interface of uvicorn."""
    import inspect

    import uvicorn.server

    assert SHUTDOWN in inspect.getsource(uvicorn.server)
