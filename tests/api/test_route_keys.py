"""Every route of the OpenAPI document × no key, a wrong key, another tenant's key, the own key, the admin key, and
principals of an authenticator.

A route that is new has to be put into TABLE: what it asks for decides what is tested of it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from litestar import get

from llmfw.api.access.authenticators import Authenticators, InUse
from llmfw.core import Authenticator, Credentials, Principal, Refusal
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving
from .batches.rig import chat_line, jsonl

ALICE, BOB, ROOT = (f"{name}-0123456789abcdef" for name in ("alice", "bob", "root"))
CALLERS = {
    "none": "",
    "wrong": "wrong-0123456789abcdef",
    "refused": "refused",
    "other": BOB,
    "namesake": "user:alice",  # of an authenticator: not the API key "alice"
    "own": ALICE,
    "admin": ROOT,
    "other_admin": "root",
}
REFUSED = ("none", "wrong", "refused")
ADMINS = ("admin", "other_admin")

PUBLIC = "needs no key"
SHARED = "is the same for every key"
OWNED = "is about something that belongs to a tenant"
LISTS = "lists what belongs to a tenant"
ADMIN = "is for the admin key"
ENDING = "is for the admin key, and keeps the server from answering"

TABLE = {
    "GET /": PUBLIC,
    "GET /health": PUBLIC,
    "GET /health/live": PUBLIC,
    "GET /health/ready": PUBLIC,
    "GET /health_generate": PUBLIC,  # callers at one time share one token
    "GET /ping": PUBLIC,
    "POST /ping": PUBLIC,
    "GET /plugin/hello": SHARED,
    "GET /metrics": SHARED,
    "GET /openapi.json": SHARED,
    "POST /invocations": SHARED,
    "POST /pooling": SHARED,
    "POST /score": SHARED,
    "POST /v1/score": SHARED,
    "POST /rerank": SHARED,
    "POST /v1/rerank": SHARED,
    "POST /v2/rerank": SHARED,
    "POST /v2/embed": SHARED,
    "POST /classify": SHARED,
    "POST /v1/classify": SHARED,
    "GET /version": SHARED,
    "GET /get_model_info": SHARED,
    "GET /model_info": SHARED,
    "GET /get_server_info": SHARED,
    "GET /server_info": SHARED,
    "GET /tokenizer_info": SHARED,
    "GET /v1/tokenizer_info": SHARED,
    "GET /v1/models": SHARED,
    "GET /v1/models/{model_id}": SHARED,
    "POST /generate": SHARED,
    "POST /tokenize": SHARED,
    "POST /v1/tokenize": SHARED,
    "POST /detokenize": SHARED,
    "POST /v1/detokenize": SHARED,
    "POST /v1/chat/completions": SHARED,
    "POST /v1/completions": SHARED,
    "POST /v1/embeddings": SHARED,
    "POST /v1/messages": SHARED,
    "POST /v1/messages/count_tokens": SHARED,
    "POST /v1/files": SHARED,
    "GET /v1/files": LISTS,
    "GET /v1/files/{file_id}": OWNED,
    "DELETE /v1/files/{file_id}": OWNED,
    "GET /v1/files/{file_id}/content": OWNED,
    "HEAD /v1/files/{file_id}/content": OWNED,
    "POST /v1/uploads": SHARED,
    "POST /v1/uploads/{upload_id}/parts": OWNED,
    "POST /v1/uploads/{upload_id}/complete": OWNED,
    "POST /v1/uploads/{upload_id}/cancel": OWNED,
    "POST /v1/batches": OWNED,  # its input file
    "GET /v1/batches": LISTS,
    "GET /v1/batches/{batch_id}": OWNED,
    "POST /v1/batches/{batch_id}/cancel": OWNED,
    "POST /v1/responses": OWNED,  # the response that it continues
    "POST /v1/responses/input_tokens": OWNED,
    "GET /v1/responses/{response_id}": OWNED,
    "DELETE /v1/responses/{response_id}": OWNED,
    "POST /v1/responses/{response_id}/cancel": OWNED,
    "GET /v1/responses/{response_id}/input_items": OWNED,
    "GET /admin/policy": ADMIN,
    "PUT /admin/policy": ADMIN,
    "GET /admin/cache": ADMIN,
    "POST /admin/cache/flush": ADMIN,
    "GET /flush_cache": ADMIN,
    "POST /flush_cache": ADMIN,
    "POST /admin/cache/pins": ADMIN,
    "DELETE /admin/cache/pins/{pin_id}": ADMIN,
    "GET /admin/requests/{request_id}": ADMIN,
    "GET /admin/adapters": ADMIN,
    "POST /admin/adapters": ADMIN,
    "DELETE /admin/adapters/{name}": ADMIN,
    "POST /v1/load_lora_adapter": ADMIN,
    "POST /v1/unload_lora_adapter": ADMIN,
    "GET /admin/replicas": ADMIN,
    "POST /admin/replicas": ADMIN,
    "DELETE /admin/replicas/{index}": ADMIN,
    "POST /admin/replicas/{index}/drain": ADMIN,
    "POST /admin/replicas/{index}/undrain": ADMIN,
    "POST /admin/drain": ENDING,
    "POST /admin/reload": ADMIN,
    "POST /admin/sleep": ADMIN,
    "POST /admin/wake": ADMIN,
    "POST /admin/weights": ADMIN,
}


class Words(Authenticator):
    """Knows the words in CALLERS."""

    async def authenticate(self, credentials: Credentials) -> Principal | Refusal | None:
        word = credentials.bearer() or ""
        if word == "refused":
            return Refusal("no")
        if word == "root":
            return Principal(is_admin=True)
        return Principal(tenant=word[5:]) if word.startswith("user:") else None


@get("/plugin/hello", sync_to_thread=False)
def hello() -> dict[str, str]:
    return {"hello": "world"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    entry = Entry("authenticator", "words", "x:Y", "words", "words", "1.0")
    words = InUse(Words(Words.Options()), ComponentCalls(entry))
    pooling = [(plugin, path) for plugin, path in load_plugins().routes if plugin == "api_pooling"]
    with serving(
        EchoEngine(),
        byte_tokenizer(tmp_path_factory.mktemp("model")),
        api_key=(("alice", ALICE), ("bob", BOB)),
        admin_api_key=ROOT,
        authenticators="words",
        authenticator_objects=Authenticators([words]),
        plugin_routes=[("hello", f"{__name__}:hello"), *pooling],
    ) as served:
        yield served


class Caller:
    """Sends requests with one key.

    Args:
        name: of `CALLERS`.
    """

    def __init__(self, served: Served, name: str) -> None:
        key = CALLERS[name]
        self.name = name
        self._url = served.url
        self._headers = {"authorization": f"Bearer {key}"} if key else {}

    def send(self, method: str, path: str, **fields: Any) -> httpx.Response:
        return httpx.request(method, self._url + path, headers=self._headers, timeout=20, **fields)

    def made(self, path: str, **fields: Any) -> str:
        """Make something, and return its id."""
        reply = self.send("POST", path, **fields)
        assert reply.status_code == 200, reply.text
        return str(reply.json()["id"])


@pytest.fixture
def callers(served: Served) -> dict[str, Caller]:
    return {name: Caller(served, name) for name in CALLERS}


def new_file(alice: Caller) -> str:
    file = {"file": ("in.jsonl", io.BytesIO(jsonl([chat_line("a")])))}
    return alice.made("/v1/files", data={"purpose": "batch"}, files=file)


def new_upload(alice: Caller) -> str:
    body = {"filename": "a", "purpose": "batch", "bytes": 4, "mime_type": "text/plain"}
    return alice.made("/v1/uploads", json=body)


def new_batch(alice: Caller) -> str:
    body = {"input_file_id": new_file(alice), "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    return alice.made("/v1/batches", json=body)


def new_response(alice: Caller) -> str:
    return alice.made("/v1/responses", json={"input": "Hi", "background": True})


NEW: dict[str, Callable[[Caller], str]] = {
    "file_id": new_file,
    "upload_id": new_upload,
    "batch_id": new_batch,
    "response_id": new_response,
}
REFERRED = {
    "POST /v1/batches": "file_id",
    "POST /v1/responses": "response_id",
    "POST /v1/responses/input_tokens": "response_id",
}
"""What the bodies of some routes refer to."""
UNKNOWN = {
    "file_id": "file-0",
    "upload_id": "upload_0",
    "batch_id": "batch_0",
    "response_id": "resp_0",
}


def request_of(route: str, id: str, part_id: str = "") -> tuple[str, str, dict[str, Any]]:
    """Return method, path and body of a request for something of an id."""
    method, template = route.split(" ")
    path = re.sub(r"{\w+}", id, template)
    if route.endswith("/parts"):
        return method, path, {"files": {"data": ("part", b"data")}}
    bodies: dict[str, Any] = {
        "POST /v1/batches": {
            "input_file_id": id,
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        },
        "POST /v1/responses": {"input": "And?", "previous_response_id": id},
        "POST /v1/responses/input_tokens": {"input": "And?", "previous_response_id": id},
        "POST /v1/uploads/{upload_id}/complete": {"part_ids": [part_id]},
    }
    return method, path, {"json": bodies[route]} if route in bodies else {}


def routes_of(*kinds: str) -> list[str]:
    return [route for route, kind in TABLE.items() if kind in kinds]


def test_the_table_has_every_route(callers: dict[str, Caller]) -> None:
    paths = callers["own"].send("GET", "/openapi.json").json()["paths"]
    documented = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert documented == TABLE.keys(), "put each new route into TABLE, by what it asks for"


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("route", routes_of(PUBLIC, SHARED, LISTS))
def test_shared_routes_need_any_valid_key(callers: dict[str, Caller], route: str, caller: str) -> None:
    method, path, _ = request_of(route, SERVED_NAME)
    reply = callers[caller].send(method, path, **({} if method == "GET" else {"json": {}}))
    if TABLE[route] != PUBLIC and caller in REFUSED:
        assert reply.status_code == 401
    else:
        assert reply.status_code in ((200,) if method == "GET" or path == "/ping" else (400, 415)), reply.text


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("route", routes_of(ADMIN, ENDING))
def test_only_the_admin_key_opens_admin_routes(callers: dict[str, Caller], route: str, caller: str) -> None:
    method, path, _ = request_of(route, "unknown")
    if TABLE[route] == ENDING and caller in ADMINS:
        return  # `test_draining` has this
    reply = callers[caller].send(method, path, **({"json": {}} if method in ("POST", "PUT") else {}))
    if caller in ADMINS:
        assert reply.status_code in (200, 400, 404)
    else:
        assert reply.status_code == (401 if caller in REFUSED else 403)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("route", routes_of(OWNED))
def test_owned_objects_are_visible_to_their_tenant(
    callers: dict[str, Caller], route: str, caller: str
) -> None:
    alice, asking = callers["own"], callers[caller]
    kind = REFERRED.get(route) or re.findall(r"{(\w+)}", route)[0]
    id, part_id = NEW[kind](alice), "part_0"
    if route.endswith("/complete"):
        part_id = alice.made(f"/v1/uploads/{id}/parts", files={"data": ("part", b"data")})
    if kind == "response_id":
        wait_for_end(alice, id)
    method, path, body = request_of(route, id, part_id)
    reply = asking.send(method, path, **body)
    if caller in REFUSED:
        assert reply.status_code == 401
    elif caller in ("own", *ADMINS):
        ended = route == "POST /v1/batches/{batch_id}/cancel" and reply.status_code == 409
        assert reply.status_code == 200 or ended, reply.text
    else:
        method, path, body = request_of(route, UNKNOWN[kind], part_id)
        unknown = asking.send(method, path, **body)
        assert reply.status_code == unknown.status_code == (400 if "previous" in unknown.text else 404)
        assert reply.text.replace(id, "ID") == unknown.text.replace(UNKNOWN[kind], "ID")
        method, path, body = request_of(route, id, part_id)
        assert alice.send(method, path, **body).status_code in (200, 409)  # nothing has happened to it


@pytest.mark.parametrize(("path", "new"), [("/v1/files", new_file), ("/v1/batches", new_batch)])
def test_lists_show_only_own_objects(
    callers: dict[str, Caller], path: str, new: Callable[[Caller], str]
) -> None:
    made = [new(callers["own"]), new(callers["other"]), new(callers["own"])]

    def listed(caller: str, query: str = "") -> list[str]:
        return [item["id"] for item in callers[caller].send("GET", f"{path}?limit=100{query}").json()["data"]]

    assert listed("own")[:2] == [made[2], made[0]]
    assert not set(listed("own")) & set(listed("other"))
    assert listed("admin")[:3] == made[::-1]
    assert listed("other", f"&after={made[2]}")[:1] == [made[1]]  # as after any id, there or not


def wait_for_end(alice: Caller, response_id: str) -> None:
    for _ in range(500):
        if alice.send("GET", f"/v1/responses/{response_id}").json()["status"] == "completed":
            return
    raise TimeoutError(response_id)
