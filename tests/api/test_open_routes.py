"""Routes of plugins that need no key, and the one that browsers get at `/`."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from litestar import Controller, Litestar, get, post

from llmfw.api.app.open_routes import home_of
from llmfw.api.app.plugin_routes import plugin_route
from llmfw.core.base.errors import ComponentError
from llmfw.core.interfaces.operation import describe
from llmfw.core.plugin.calls import ComponentLedger

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import byte_tokenizer, serving


@get("/own/open", opt=describe("Greet.", scope=""), media_type="text/html", sync_to_thread=False)
def greeting() -> str:
    return "hello"


@get("/own/keyed", sync_to_thread=False)
def keyed() -> str:
    return "secret"


@get(
    "/own/home", opt=describe("Greet.", scope="", is_home=True), media_type="text/html", sync_to_thread=False
)
def home() -> str:
    return "home"


@get("/own/other", opt=describe("Greet.", scope="", is_home=True), sync_to_thread=False)
def other_home() -> str:
    return "other"


@get("/own/keyed-home", opt=describe("Greet.", is_home=True), sync_to_thread=False)
def keyed_home() -> str:
    return "keyed"


@get("/own/hidden", opt=describe("Greet.", scope=""), include_in_schema=False, sync_to_thread=False)
def hidden() -> str:
    return "hidden"


class Both(Controller):
    """A path of two methods, one of which needs a key."""

    path = "/own/both"

    @get("/", opt=describe("Greet.", scope=""), sync_to_thread=False)
    def greet(self) -> str:
        return "hello"

    @post("/", opt=describe("Change."), sync_to_thread=False)
    def change(self) -> str:
        return "changed"


@post("/own/posted", opt=describe("Change.", scope=""), sync_to_thread=False)
def posted() -> None:
    """Change something."""


@get("/own/{name:str}", opt=describe("Read.", scope=""), sync_to_thread=False)
def named(name: str) -> str:
    return name


@get("/admin/own", opt=describe("Read.", scope=""), sync_to_thread=False)
def administrative() -> None:
    """Read something."""


def routes(*names: str) -> list[tuple[str, str]]:
    return [("own", f"{__name__}:{name}") for name in names]


def test_a_route_without_a_scope_needs_no_key(tmp_path: Path) -> None:
    with serving(
        EchoEngine(), byte_tokenizer(tmp_path), plugin_routes=routes("greeting", "keyed"), api_key="secret"
    ) as served:
        assert httpx.get(f"{served.url}/own/open").text == "hello"
        assert httpx.get(f"{served.url}/own/keyed").status_code == 401
        assert httpx.get(f"{served.url}/own/open/").status_code == 401  # not the very path


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("posted", "only GET routes may"),
        ("Both", "only GET routes may"),
        ("named", "a path with parameters must need one"),
        ("administrative", "routes below /admin are for administrators"),
    ],
)
def test_routes_that_may_not_be_open_are_refused(name: str, reason: str) -> None:
    with pytest.raises(ComponentError, match=reason):
        plugin_route("own", f"{__name__}:{name}", ComponentLedger())


def test_browsers_get_the_home_route(tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), plugin_routes=routes("home"), api_key="k") as served:
        assert httpx.get(served.url, headers={"accept": "text/html"}).text == "home"
        assert httpx.get(served.url).json()["name"] == "llmfw"


def test_without_a_home_route_browsers_get_json(tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), plugin_routes=routes("greeting")) as served:
        reply = httpx.get(served.url, headers={"accept": "text/html"})
    assert reply.json()["name"] == "llmfw"
    assert "vary" not in reply.headers


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("home", "other_home"), "/own/home and /own/other are both declared as the home page"),
        (("keyed_home",), "/own/keyed-home is declared as the home page, and needs a key"),
    ],
)
def test_unclear_home_routes_are_refused(names: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ComponentError, match=reason):
        home_of(Litestar([globals()[name] for name in names], openapi_config=None))


def test_routes_outside_the_schema_are_not_listed(tmp_path: Path) -> None:
    with serving(
        EchoEngine(), byte_tokenizer(tmp_path), plugin_routes=routes("hidden", "greeting"), api_key="k"
    ) as served:
        paths = httpx.get(f"{served.url}/openapi.json", headers={"x-api-key": "k"}).json()["paths"]
    assert "/own/hidden" not in paths
    assert paths["/own/open"]["get"]["security"] == []
