"""Every route of the OpenAPI document needs its scope, and no other one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from litestar import get, post
from litestar.datastructures import State

from llmfw.api.access.authenticators import Authenticators, InUse
from llmfw.api.access.scopes import PATH_SCOPES
from llmfw.api.app.app import OPEN_PATHS
from llmfw.api.app.plugin_routes import plugin_route
from llmfw.api.batches.paths import TASKS
from llmfw.core import SCOPES, Authenticator, ComponentError, Credentials, Principal, describe
from llmfw.core.plugin.calls import ComponentCalls, ComponentLedger
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving
from .batches.rig import chat_line, jsonl

ADMIN = "admin"


class Words(Authenticator):
    """Takes tokens that list scopes: "models,embed", "all" or "admin"."""

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        word = credentials.bearer()
        if word is None:
            return None
        if word == ADMIN:
            return Principal(is_admin=True)
        return Principal(tenant="alice", scopes=None if word == "all" else frozenset(word.split(",")))


@get("/plugin/plain", sync_to_thread=False)
def plain(state: State) -> list[str]:
    return sorted(state["services"].caller.scopes or ())


@get("/plugin/metrics", opt=describe("Count.", scope="metrics"), sync_to_thread=False)
def counted() -> str:
    return "1"


@get("/plugin/odd", opt=describe("Count.", scope="counting"), sync_to_thread=False)
def odd() -> str:
    return "1"


@post("/plugin/root", opt=describe("Count.", scope="admin"), sync_to_thread=False)
def root() -> str:
    return "1"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    entry = Entry("authenticator", "words", "x:Y", "words", "words", "1.0")
    words = InUse(Words(Words.Options()), ComponentCalls(entry))
    bundled = [each for each in load_plugins().routes if each[0] in ("api_pooling", "api_ollama")]
    with serving(
        EchoEngine(),
        byte_tokenizer(tmp_path_factory.mktemp("model")),
        authenticators="words",
        authenticator_objects=Authenticators([words]),
        plugin_routes=[("own", f"{__name__}:plain"), ("own", f"{__name__}:counted"), *bundled],
    ) as served:
        yield served


KEYS = """\
narrow=narrow-key scopes=models
narrow=wide-key
both=both-key scopes=models,generate
"""


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose key file limits scopes, with an admin key."""
    folder = tmp_path_factory.mktemp("keys")
    (folder / "keys").write_text(KEYS)
    (folder / "admin").write_text("admin-key\n")
    with serving(
        EchoEngine(),
        byte_tokenizer(tmp_path_factory.mktemp("model")),
        api_key_file=str(folder / "keys"),
        admin_api_key_file=str(folder / "admin"),
        plugin_routes=[("own", f"{__name__}:plain")],
    ) as served:
        yield served


def send(served: Served, token: str, method: str, path: str, **fields: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"}
    return httpx.request(method, served.url + path, headers=headers, timeout=20, **fields)


@pytest.fixture(scope="module")
def scope_of(served: Served) -> dict[tuple[str, str], str | None]:
    """Return the scope that the document names for each method and path; None: no key is needed."""
    paths = send(served, "models", "GET", "/openapi.json").json()["paths"]
    return {
        (method.upper(), path): entry["security"][0]["key"][0] if entry["security"] else None
        for path, entries in paths.items()
        for method, entry in entries.items()
    }


def body_of(method: str) -> dict[str, Any]:
    return {"json": {}} if method in ("POST", "PUT") else {}


def test_every_route_names_its_scope(scope_of: dict[tuple[str, str], str | None]) -> None:
    assert set(scope_of.values()) == {*SCOPES, ADMIN, None}
    assert {path for (_, path), scope in scope_of.items() if scope is None} == OPEN_PATHS
    for (_, path), scope in scope_of.items():
        is_for_admins = path.startswith(("/admin", "/flush_cache")) or path.endswith("load_lora_adapter")
        assert (scope == ADMIN) == is_for_admins


CHANGING = ("/admin/drain",)
"""Routes that keep the server from answering others; test_draining has their scopes."""


def test_all_other_scopes_do_not_open_a_route(
    served: Served, scope_of: dict[tuple[str, str], str | None]
) -> None:
    for (method, path), scope in scope_of.items():
        others = ",".join(SCOPES.keys() - {scope})
        reply = send(served, others, method, path, **body_of(method))
        if scope is None:
            assert reply.status_code == 200
            continue
        assert reply.status_code == 403, (method, path)
        if method != "HEAD" and scope != ADMIN:
            error = reply.json()["error"]
            shown = error if isinstance(error, str) else error["message"]
            assert shown.startswith(f"{method} {path} needs the scope '{scope}', which"), shown


def test_its_scope_alone_opens_a_route(served: Served, scope_of: dict[tuple[str, str], str | None]) -> None:
    for (method, path), scope in scope_of.items():
        if path in CHANGING:
            continue
        for token in (ADMIN,) if scope == ADMIN else (scope or "models", "all", ADMIN):
            reply = send(served, token, method, path, **body_of(method))
            assert reply.status_code in (200, 400, 404, 415), (method, path, token, reply.text)


def test_the_error_has_the_format_of_the_path(served: Served) -> None:
    error = send(served, "models", "POST", "/v1/embeddings", json={}).json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "missing_scope", None)
    error = send(served, "models", "POST", "/v1/messages", json={}).json()["error"]
    assert error["type"] == "permission_error"
    assert isinstance(send(served, "models", "POST", "/api/chat", json={}).json()["error"], str)


def test_head_needs_the_scope_of_get(served: Served) -> None:
    assert send(served, "models", "HEAD", "/v1/models").status_code == 200
    assert send(served, "embed", "HEAD", "/v1/models").status_code == 403


@pytest.mark.parametrize(
    ("token", "endpoint", "status"),
    [
        ("files,batches", "/v1/chat/completions", 403),
        ("files,batches,responses", "/v1/chat/completions", 403),
        ("files,batches,generate", "/v1/responses", 403),
        ("files,batches,generate", "/v1/chat/completions", 200),
        ("all", "/v1/chat/completions", 200),
    ],
)
def test_a_batch_needs_its_endpoints_scope(served: Served, token: str, endpoint: str, status: int) -> None:
    file = {"file": ("in.jsonl", jsonl([chat_line("a")]))}
    made = send(served, token, "POST", "/v1/files", data={"purpose": "batch"}, files=file)
    body = {"input_file_id": made.json()["id"], "endpoint": endpoint, "completion_window": "24h"}
    reply = send(served, token, "POST", "/v1/batches", json=body)
    assert reply.status_code == status, reply.text
    if status == 403:
        assert f"{endpoint} needs the scope" in reply.json()["error"]["message"]


def test_paths_have_the_scopes_of_their_routes(scope_of: dict[tuple[str, str], str | None]) -> None:
    assert PATH_SCOPES.keys() == TASKS.keys()
    for path, scope in PATH_SCOPES.items():
        assert scope_of["POST", path] == scope


def test_a_forwarded_request_needs_its_paths_scope(served: Served) -> None:
    body = {"model": SERVED_NAME, "input": "a"}
    reply = send(served, "generate", "POST", "/invocations", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "missing_scope")
    assert send(served, "generate,embed", "POST", "/invocations", json=body).status_code == 400


def test_a_plugins_route_sees_the_callers_scopes(served: Served) -> None:
    assert send(served, "generate,files", "GET", "/plugin/plain").json() == ["files", "generate"]


@pytest.mark.parametrize(
    ("key", "models", "chat", "settings"),
    [
        ("narrow-key", 200, 403, 403),
        ("wide-key", 200, 200, 403),
        ("both-key", 200, 200, 403),
        ("admin-key", 200, 200, 200),
        ("unknown-key", 401, 401, 401),
    ],
)
def test_keys_of_a_file_have_its_scopes(
    keyed: Served, key: str, models: int, chat: int, settings: int
) -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    reply = send(keyed, key, "POST", "/v1/chat/completions", json=body)
    assert reply.status_code == chat, reply.text
    assert (chat == 403) == ("missing_scope" in reply.text)
    assert send(keyed, key, "GET", "/v1/models").status_code == models
    assert send(keyed, key, "GET", "/admin/cache").status_code == settings


def test_a_plugins_route_sees_the_keys_scopes(keyed: Served) -> None:
    assert send(keyed, "both-key", "GET", "/plugin/plain").json() == ["generate", "models"]
    assert send(keyed, "narrow-key", "GET", "/plugin/plain").status_code == 403


@pytest.mark.parametrize(("name", "scope"), [("odd", "counting"), ("root", "admin")])
def test_unknown_scopes_of_routes_are_refused(name: str, scope: str) -> None:
    with pytest.raises(ComponentError, match=f"declares the scope '{scope}'; it must be one of models, "):
        plugin_route("own", f"{__name__}:{name}", ComponentLedger())
