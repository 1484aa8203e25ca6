"""Requests find cached prefixes of their own API key only, unless the server shares them among all clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from llmfw.api.access.key_caches import parts_of, salt_of_key
from llmfw.core.base.control import PinPrefix, PrefixInfo

from ...doubles.echo_administration import EchoAdministration
from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving

KEYS = (("ann", "one"), ("bob", "two"))
PINS = "/admin/cache/pins"
ROUTES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3},
    "/generate": {"text": "Hi"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with serving(EchoEngine(), tokenizer, api_key=KEYS, admin_api_key="root") as served:
        yield served


def salt_after(server: Served, key: str, path: str, **fields: str) -> str:
    model = {} if path == "/generate" else {"model": SERVED_NAME}
    reply = httpx.post(
        server.url + path, json=ROUTES[path] | model | fields, headers={"authorization": f"Bearer {key}"}
    )
    assert reply.status_code == 200, reply.text
    return str(server.engine.requests[-1].cache_salt)


@pytest.mark.parametrize("path", ROUTES)
def test_no_two_keys_share_a_cache(server: Served, path: str) -> None:
    salts = [salt_after(server, key, path) for _, key in KEYS]
    assert salts == [salt_of_key(name, "") for name, _ in KEYS]
    if path not in ("/v1/messages",):
        both = [salt_after(server, key, path, cache_salt="s") for _, key in KEYS]
        assert len({*salts, *both}) == 4


def test_a_salt_cannot_be_taken_for_a_key(tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), api_key="zero") as unnamed:
        forged = salt_after(unnamed, "zero", "/generate", cache_salt=salt_of_key("ann", ""))
        assert parts_of(forged) == ("", salt_of_key("ann", ""))
        assert salt_after(unnamed, "zero", "/generate", cache_salt="s") == "s"


def test_a_server_may_share_its_cache(tmp_path: Path) -> None:
    with serving(
        EchoEngine(), byte_tokenizer(tmp_path), api_key=KEYS, prefix_cache_scope="server"
    ) as sharing:
        assert [salt_after(sharing, key, "/generate") for _, key in KEYS] == ["", ""]


def test_a_pin_names_its_tenant(server: Served) -> None:
    administration = server.engine.administration
    assert isinstance(administration, EchoAdministration)
    root = {"authorization": "Bearer root"}
    error = httpx.post(server.url + PINS, json={"prompt": "Hi"}, headers=root).json()["error"]
    assert error["param"] == "tenant"
    administration.commands.clear()
    body = {"prompt": "Hi", "tenant": "ann", "cache_salt": "s"}
    assert httpx.post(server.url + PINS, json=body, headers=root).status_code == 200
    [command] = administration.commands
    assert isinstance(command, PinPrefix)
    assert parts_of(command.salt) == ("ann", "s")
    assert httpx.post(server.url + PINS, json=body | {"compute": True}, headers=root).status_code == 200
    assert server.engine.requests[-1].cache_salt == command.salt
    ids = server.tokenizer.encode("Hi")
    administration.prefixes[:] = [PrefixInfo(2, 2, 0, 0, 1.0, 0, False, command.salt, ids, ids)]
    [shown] = httpx.get(server.url + "/admin/cache?most=1", headers=root).json()["prefixes"]
    assert (shown["tenant"], shown["cache_salt"]) == ("ann", "s")


def test_without_keys_a_pin_has_no_tenant(tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path)) as open_server:
        reply = open_server.post(PINS, {"prompt": "Hi", "tenant": "ann"})
        assert reply.json()["error"]["param"] == "tenant"
        assert open_server.post(PINS, {"prompt": "Hi"}).status_code == 200
