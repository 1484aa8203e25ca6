"""Whatever a plugin's route does wrong is a 500 that names the plugin, and a line in the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Response, get
from litestar.exceptions import InternalServerException
from litestar.response import Stream

from llmfw.core.base.errors import RequestError, UnreadableRequestError

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving


class Panic(BaseException):
    pass


RAISED: dict[str, BaseException] = {
    "panic": Panic("a panic"),
    "exit": SystemExit(3),
    "leaving": GeneratorExit(),
    "cancelled": asyncio.CancelledError(),
    "request": UnreadableRequestError("the engine cannot read request 'a': Expected `int`, got `str`"),
    "bug": ExceptionGroup("tasks", [RequestError("no such thing"), KeyError("a bug")]),
    "panics": BaseExceptionGroup("tasks", [Panic("a panic")]),
}


@get("/faults/raise/{name:str}")
async def raising(name: str) -> None:
    raise RAISED[name]


@get("/faults/body/{name:str}")
async def body(name: str) -> Any:
    return {"object": {"a": object()}, "surrogate": {"a": "\ud800"}, "text": "\ud800"}[name]


@get("/faults/head/{name:str}")
async def head(name: str) -> Response[str]:
    if name == "status":
        return Response("x", status_code=999)
    return Response("x", headers={"x-a": "b\r\nx-c: d"} if name == "lines" else {"x a": "b"})


@get("/faults/stream")
async def stream() -> Stream:
    async def pieces() -> AsyncIterator[str]:
        yield "one"
        await asyncio.sleep(0.1)
        raise Panic("mid")

    return Stream(pieces())


@get("/faults/meant/{name:str}")
async def meant(name: str) -> None:
    raise RequestError("no such thing", param="a") if name == "400" else InternalServerException("busy")


@get("/faults/tasks")
async def tasks(number: int, is_streamed: bool) -> Any:
    async def fail() -> AsyncIterator[str]:
        async with asyncio.TaskGroup() as group:
            for each in range(number):
                group.create_task(refuse(each))
        yield ""

    return Stream(fail()) if is_streamed else [each async for each in fail()]


async def refuse(number: int) -> None:
    raise RequestError(f"no document {number}", param="documents")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    routes = [
        ("ext", f"{__name__}:{name}") for name in ("raising", "body", "head", "stream", "meant", "tasks")
    ]
    tokenizer = byte_tokenizer(Path(tmp_path_factory.mktemp("model")))
    with serving(EchoEngine(), tokenizer, plugin_routes=routes) as served:
        yield served


FAULTS = [
    *(f"raise/{name}" for name in RAISED),
    *(f"body/{name}" for name in ("object", "surrogate", "text")),
    *(f"head/{name}" for name in ("status", "lines", "name")),
]


@pytest.mark.parametrize("path", FAULTS)
def test_a_fault_of_a_route_names_its_plugin(
    server: Served, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    reply = httpx.get(f"{server.url}/faults/{path}", timeout=10)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (500, "plugin_error")
    assert "of plugin 'ext' failed on this request" in error["message"]
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "of plugin 'ext' (" in record.getMessage()
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_a_stream_that_breaks_names_its_plugin(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"{server.url}/faults/stream", timeout=10)
    records = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "of plugin 'ext' (" in records[0]


@pytest.mark.parametrize(("name", "status"), [("400", 400), ("500", 500)])
def test_what_a_route_says_comes_through(server: Served, name: str, status: int) -> None:
    reply = httpx.get(f"{server.url}/faults/meant/{name}")
    assert reply.status_code == status
    assert reply.json()["error"]["message"] in ("no such thing", "busy")


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("number", [1, 3])
def test_a_group_is_answered_like_its_first(server: Served, number: int, is_streamed: bool) -> None:
    query = {"number": number, "is_streamed": is_streamed}
    reply = httpx.get(f"{server.url}/faults/tasks", params=query, timeout=10)
    assert reply.status_code == 400
    assert (reply.json()["error"]["message"], reply.json()["error"]["param"]) == (
        "no document 0",
        "documents",
    )
