"""`llmfw check route` and `llmfw check command` say whether llmfw can have what a plugin brings beside parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llmfw.api.checks import route_answers
from llmfw.api.cli import build_cli

ROUTES = """
import asyncio, time
import msgspec
from litestar import Controller, Request, get, post
from llmfw.core import describe
from litestar.datastructures import State
from llmfw.core.base.errors import OverloadedError

@get("/load")
async def load(state: State) -> dict[str, int]:
    return {"waiting": (await state["client"].stats()).num_waiting}

@get("/busy")
async def busy() -> None:
    raise OverloadedError("later")

@get("/broken")
async def broken() -> None:
    raise IndexError("too far")

@get("/v1/models")
async def taken() -> None: ...

@post("/rerank")
async def ranks() -> None: ...

async def bare() -> None: ...

class Text(msgspec.Struct):
    text: str
    counts: list[int] = []

@post("/raises")
async def raises() -> None:
    raise IndexError("too far")

@get("/tasks")
async def tasks() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(broken.fn())

@post("/filled", opt=describe("Count.", body=Text))
async def filled(request: Request, state: State) -> int:
    body, _ = await state["api"].read(request, Text)
    return body.counts[0]

@post("/sleeps")
async def sleeps(request: Request, state: State) -> None:
    time.sleep(0.3)

@post("/fine", opt=describe("Count.", body=Text))
async def fine(request: Request, state: State) -> int:
    body, _ = await state["api"].read(request, Text)
    await asyncio.sleep(1.5)
    return len(body.counts)

class Words(Controller):
    path = "/words"

    @post("/")
    async def add(self) -> None: ...

@hookimpl
def register_routes(register):
    for name in ("load", "busy", "broken", "taken", "bare", "Words", "raises", "filled", "sleeps", "fine", "ranks", "tasks"):
        register(f"{__name__}:{name}")
"""

ENDLESS = """
import asyncio
from litestar import get
from litestar.response import Stream

@get("/endless")
async def endless() -> Stream:
    async def ticks():
        while True:
            yield b"data: tick\\n\\n"
            await asyncio.sleep(0.01)

    return Stream(ticks(), media_type="text/event-stream")

@hookimpl
def register_routes(register):
    register(f"{__name__}:endless")
"""

COMMANDS = """
import click
from llmfw.core.interfaces.lazy_command import LazyCommand

@hookimpl
def register_commands(cli):
    @cli.command()
    def count():
        "Count."

    @cli.command("serve")
    def ours(): ...

    cli.add_command(LazyCommand("gone", "nowhere:gone", "Not there."))
"""


def check(line: str) -> Result:
    return CliRunner().invoke(build_cli(), ["check", *line.split()])


Routes = Callable[[str], Result]


@pytest.fixture
def check_route(install_plugin: Callable[..., Path]) -> Routes:
    [file] = install_plugin("ours", ROUTES).glob("*.py")
    return lambda name: check(f"route {file.stem}:{name}")


def test_a_valid_route_is_called(check_route: Routes) -> None:
    for name in ("load", "busy"):
        done = check_route(name)
        assert done.exit_code == 0, done.output
        assert "  ok       a GET without parameters is answered" in done.stdout
    done = check_route("Words")
    assert done.exit_code == 0
    assert "skipped  a GET without parameters is answered: it has no GET without parameters" in done.stdout


def test_a_slow_route_that_awaits_is_fine(check_route: Routes) -> None:
    done = check_route("fine")
    assert done.exit_code == 0, done.output
    assert "  ok       a request with a body is answered" in done.stdout
    assert "  ok       it does not block the event loop" in done.stdout


def test_an_endless_stream_is_not_checked_further(
    install_plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route_answers, "MAX_WAIT_S", 0.3)
    [file] = install_plugin("streams", ENDLESS).glob("*.py")
    done = check(f"route {file.stem}:endless")
    assert done.exit_code == 0, done.output
    assert (
        "skipped  a GET without parameters is answered: GET /endless did not end within 0.3 s" in done.stdout
    )


def test_a_path_of_a_bundled_route_is_taken(check_route: Routes) -> None:
    done = check_route("ranks")
    assert done.exit_code == 1
    assert "FAILED   its paths are free" in done.stdout
    assert "POST /rerank by route 'llmfw.plugins.api_pooling" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("broken", "GET /broken: IndexError: too far"),
        ("tasks", "TaskGroup (1 sub-exception): IndexError: too far"),
        ("raises", "POST /raises with the body '': IndexError: too far"),
        ("filled", """POST /filled with the body '{"text":"a"}': IndexError"""),
        ("sleeps", "POST /sleeps with the body '' held the event loop for 0."),
        ("taken", "is at a path that is taken: "),
        ("bare", "is a function that none of litestar's get, post, … decorates"),
    ],
)
def test_an_invalid_route_names_the_reason(check_route: Routes, name: str, says: str) -> None:
    done = check_route(name)
    assert done.exit_code == 1
    assert "FAILED" in done.stdout
    assert says in done.stdout


@pytest.mark.long
def test_a_plugin_s_routes_are_checked_together(check_route: Routes) -> None:
    done = check("route ours")
    assert (done.exit_code, done.stdout.count("of plugin 'ours'")) == (1, 12)
    assert "no plugin brings a route 'theirs'; known: " in check("route theirs").output


def test_commands_are_checked_for_the_command_line(install_plugin: Callable[..., Path]) -> None:
    install_plugin("ours", COMMANDS)
    assert check("command bench").exit_code == 0
    assert check("command count").exit_code == 0
    done = check("command ours/serve --json")
    broken = [each["reason"] for each in json.loads(done.stdout)["promises"] if each["outcome"] == "failed"]
    assert broken == [
        "llmfw has a command 'serve' of its own; this one is called 'ours/serve'",
        "it has none: give the function a docstring",
    ]
    assert "No module named 'nowhere'" in check("command gone").stdout


def test_a_command_with_slow_imports_fails(install_plugin: Callable[..., Path]) -> None:
    install_plugin("ours", "import litestar\n" + COMMANDS)
    done = check("command count")
    assert done.exit_code == 1
    assert "declaring it imports litestar; import that in the command" in done.stdout
