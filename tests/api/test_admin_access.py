"""/admin is open to those who may, whatever they ask for there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import get
from litestar.datastructures import State

from llmfw.api.admin.access import AdminPaths, FromThisMachine
from llmfw.core import GetPolicy

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving
from .http.test_errors import error_of

Serve = Callable[..., AbstractContextManager[Served]]
ROUTES = (
    ("GET", "/admin/policy"),
    ("PUT", "/admin/policy"),
    ("GET", "/admin/cache"),
    ("POST", "/admin/cache/flush"),
    ("GET", "/flush_cache"),
    ("POST", "/flush_cache"),
    ("GET", "//flush_cache/"),
    ("POST", "/admin/cache/pins"),
    ("DELETE", "/admin/cache/pins/a"),
    ("GET", "/admin/requests/a"),
    ("GET", "/admin"),
    ("GET", "/admin/"),
    ("GET", "//admin//policy/"),
    ("GET", "/%61dmin/policy"),
    ("GET", "/admin/what-is-not-there"),
)


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    return partial(serving, EchoEngine(), byte_tokenizer(tmp_path))


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def is_open(served: Served, **headers: str) -> bool:
    return httpx.get(f"{served.url}/admin/policy", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "settings", [{"admin_api_key": "root"}, {"admin_api_key": "root", "api_key": "user"}]
)
def test_an_admin_key_is_required_if_set(serve: Serve, settings: dict[str, str]) -> None:
    with serve(**settings) as served:
        assert is_open(served, **bearer("root"))
        for headers in ({}, bearer("rooT")):
            for method, path in ROUTES:
                reply = httpx.request(method, served.url + path, headers=headers)
                assert error_of(reply, 401)["code"] == "invalid_api_key"


def test_other_keys_are_403(serve: Serve) -> None:
    with serve(admin_api_key="root", api_key="user") as served:
        for method, path in ROUTES:
            error = error_of(httpx.request(method, served.url + path, headers=bearer("user")), 403)
            assert error["code"] == "admin_forbidden"


def test_the_admin_key_opens_every_route(serve: Serve) -> None:
    with serve(admin_api_key="root", api_key="user") as served:
        for key in ("root", "user"):
            assert httpx.get(f"{served.url}/v1/models", headers=bearer(key)).status_code == 200


def test_the_only_key_is_also_admin(serve: Serve) -> None:
    with serve(api_key="user") as served:
        assert is_open(served, **bearer("user"))
        assert not is_open(served)


def test_several_tenants_need_an_admin_key(serve: Serve) -> None:
    with serve(api_key=(("ann", "one"), ("bob", "two"))) as served:
        for key in ("one", "two"):
            error = error_of(httpx.get(f"{served.url}/admin/cache", headers=bearer(key)), 403)
            assert "--admin-api-key-file" in error["message"]


def test_without_keys_local_clients_are_admins(serve: Serve) -> None:
    with serve() as served:
        assert is_open(served)
        assert httpx.get(f"{served.url}/v1/models", headers={"origin": "http://localhost:80"}).is_success


@pytest.mark.parametrize(
    "headers",
    [
        {"x-forwarded-for": "10.1.2.3"},
        {"x-forwarded-for": "admin"},
        {"origin": "https://a.example"},
        {"host": "rebound.example:80"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "same-origin", "origin": "https://a.example"},
        {"sec-fetch-site": "same-origin", "origin": "null"},
        {"sec-fetch-site": "same-origin", "host": "rebound.example:80"},
        {"sec-fetch-site": "same-origin", "host": "rebound.example", "origin": "http://rebound.example"},
    ],
)
def test_without_keys_outsiders_learn_about_admin_keys(serve: Serve, headers: dict[str, str]) -> None:
    with serve() as served:
        for method, path in ROUTES:
            error = error_of(httpx.request(method, served.url + path, headers=headers), 403)
            assert error["code"] == "admin_forbidden"
            assert "--admin-api-key KEY" in error["message"]


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_the_servers_own_pages_may_administrate(serve: Serve, site: str) -> None:
    with serve() as served:
        assert is_open(served, **{"sec-fetch-site": site})
        own = {"sec-fetch-site": "same-origin", "origin": served.url}
        done = httpx.put(f"{served.url}/admin/policy", headers=own, json={"name": "fcfs"})
        assert done.status_code == 200


@get("/admin/own")
async def own(state: State) -> str:
    """Send a command, as plugins' routes may."""
    return str(await state["client"].control(GetPolicy()))


@get("/other/own")
async def other(state: State) -> str:
    """Send a command from a path that is not for administrators."""
    return str(await state["client"].control(GetPolicy()))


def test_without_keys_plugins_administrate_below_admin(serve: Serve) -> None:
    routes = [("own", f"{__name__}:own"), ("own", f"{__name__}:other")]
    with serve(plugin_routes=routes) as served:
        assert httpx.get(f"{served.url}/admin/own").text.startswith("PolicyInfo(")
        error = error_of(httpx.get(f"{served.url}/other/own"), 400)
        assert error["code"] == "admin_forbidden"


class Inner:
    """An application that counts what reaches it."""

    def __init__(self) -> None:
        self.num_calls = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.num_calls += 1


def status_of(client: Any, server: Any = ("10.0.0.1", 30000), host: bytes = b"localhost:30000") -> int:
    """Return 200 if a connection passes, else the status of the answer."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    inner = Inner()
    scope = {
        "type": "http",
        "path": "/admin",
        "client": client,
        "server": server,
        "headers": [(b"host", host)],
    }
    asyncio.run(AdminPaths(Inner(), FromThisMachine(inner))(scope, None, send))  # type: ignore[arg-type]
    assert inner.num_calls == (not sent)
    if sent:
        assert json.loads(sent[1]["body"])["error"]["message"]
    return int(sent[0]["status"]) if sent else 200


@pytest.mark.parametrize("host", [b"localhost", b"localhost:80", b"127.0.0.1:80", b"[::1]:80", b"10.0.0.1"])
@pytest.mark.parametrize("client", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_loopback_clients_are_allowed(client: str, host: bytes) -> None:
    assert status_of((client, 5), host=host) == 200


@pytest.mark.parametrize("client", ["10.0.0.1", "::ffff:10.0.0.1", "fe80::1", "0.0.0.0", "testclient", ""])
def test_other_addresses_are_refused(client: str) -> None:
    assert status_of((client, 5)) == 403


@pytest.mark.parametrize(
    "host", [b"a.example", b"localhost.a.example", b"127.0.0.1.a.example", b"[", b"\xff"]
)
def test_other_host_names_are_refused(host: bytes) -> None:
    assert status_of(("127.0.0.1", 5), host=host) == 403


def test_unix_sockets_pass_and_closed_connections_do_not() -> None:
    assert status_of(None, ("/run/llmfw.sock", None)) == 200
    assert status_of(None) == 403
    assert status_of(None, None) == 403
